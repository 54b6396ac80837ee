// SPDX-License-Identifier: Apache-2.0
#include "cuda/norm/engines.h"

namespace minidnn {

const Engines<NormProblem>& Family<NormProblem>::cuda_engines() {
  static const Engines<NormProblem> all{&norm_generic()};
  return all;
}

}  // namespace minidnn
