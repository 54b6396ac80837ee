// SPDX-License-Identifier: Apache-2.0
#include "cuda/pooling/engines.h"

namespace minidnn {

const Engines<PoolingProblem>& Family<PoolingProblem>::cuda_engines() {
  static const Engines<PoolingProblem> all{&pooling_channels_cuda(), &pooling_planes(), &pooling_generic()};
  return all;
}

}  // namespace minidnn
