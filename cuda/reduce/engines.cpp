// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of reductions.
#include "cpp/engine/engine_list.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {

namespace cuda::reduce {
// clang-format off
using List = EngineList<ReduceProblem,
    struct ContiguousAxis,
    struct StridedAxis,
    struct Generic>;
// clang-format on
}  // namespace cuda::reduce

const Engines<ReduceProblem>& Family<ReduceProblem>::cuda_engines() { return cuda::reduce::List::get(); }

}  // namespace minidnn
