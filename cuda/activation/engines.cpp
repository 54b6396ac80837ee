// SPDX-License-Identifier: Apache-2.0
#include "cuda/activation/engines.h"

namespace minidnn {

const Engines<ActivationProblem>& Family<ActivationProblem>::cuda_engines() {
  static const Engines<ActivationProblem> all{&activation_dense(), &activation_generic()};
  return all;
}

}  // namespace minidnn
