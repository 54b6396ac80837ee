// SPDX-License-Identifier: Apache-2.0
// Lists the CUDA engines of transform.
#include "cpp/engine/engine_list.h"
#include "cpp/transform/transform.h"

namespace minidnn {

namespace cuda::transform {
// clang-format off
using List = EngineList<TransformProblem,
    struct Vectorized,
    struct Tiled,
    struct BatchedMemcpy,
    struct Generic>;
// clang-format on
}  // namespace cuda::transform

const Engines<TransformProblem>& Family<TransformProblem>::cuda_engines() { return cuda::transform::List::get(); }

}  // namespace minidnn
