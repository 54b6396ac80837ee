// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of pointwise functions.
#include "cpp/engine/engine_list.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {

namespace cuda::pointwise {
// clang-format off
using List = EngineList<PointwiseProblem,
    struct Vectorized>;
// clang-format on
}  // namespace cuda::pointwise

const Engines<PointwiseProblem>& Family<PointwiseProblem>::cuda_engines() { return cuda::pointwise::List::get(); }

}  // namespace minidnn
