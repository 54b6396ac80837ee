// SPDX-License-Identifier: Apache-2.0
#include "cuda/pointwise/engines.h"

namespace minidnn {

const Engines<PointwiseProblem>& Family<PointwiseProblem>::cuda_engines() {
  static const Engines<PointwiseProblem> all{&pointwise_vectors()};
  return all;
}

}  // namespace minidnn
