// SPDX-License-Identifier: Apache-2.0
#include "cuda/loss/engines.h"

namespace minidnn {

const Engines<LossProblem>& Family<LossProblem>::cuda_engines() {
  static const Engines<LossProblem> all{&loss_rows(), &loss_columns(), &loss_generic(), &loss_thread()};
  return all;
}

}  // namespace minidnn
