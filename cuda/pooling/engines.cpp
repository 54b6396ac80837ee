// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of pooling.
#include "cpp/engine/engine_list.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {

namespace cuda::pooling {
// clang-format off
using List = EngineList<PoolingProblem,
    struct Nhwc,
    struct Nchw,
    struct Generic>;
// clang-format on
}  // namespace cuda::pooling

const Engines<PoolingProblem>& Family<PoolingProblem>::cuda_engines() { return cuda::pooling::List::get(); }

}  // namespace minidnn
