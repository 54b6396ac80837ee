// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of loss (cross-entropy).
#include "cpp/engine/engine_list.h"
#include "cpp/loss/loss.h"

namespace minidnn {

namespace cuda::loss {
// clang-format off
using List = EngineList<LossProblem,
    struct PersistentRows,
    struct StridedAxis,
    struct BlockPerRow,
    struct ThreadPerRow>;
// clang-format on
}  // namespace cuda::loss

const Engines<LossProblem>& Family<LossProblem>::cuda_engines() { return cuda::loss::List::get(); }

}  // namespace minidnn
