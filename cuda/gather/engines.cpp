// SPDX-License-Identifier: Apache-2.0
// Lists the CUDA engines of gather.
#include "cpp/engine/engine_list.h"
#include "cpp/gather/gather.h"

namespace minidnn {

namespace cuda::gather {
// clang-format off
using List = EngineList<GatherProblem,
    struct ContiguousRows,
    struct Generic>;
// clang-format on
}  // namespace cuda::gather

const Engines<GatherProblem>& Family<GatherProblem>::cuda_engines() { return cuda::gather::List::get(); }

}  // namespace minidnn
