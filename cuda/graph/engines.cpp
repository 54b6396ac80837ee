// SPDX-License-Identifier: Apache-2.0
// The list of the CUDA engines of regions of graphs.
#include "cpp/engine/engine_list.h"
#include "cpp/graph/region.h"

namespace minidnn {

namespace cuda::graph {
// clang-format off
using List = EngineList<RegionProblem,
    struct LibraryOp,
    struct FoldedConv,
    struct Elementwise,
    struct RowReduction,
    struct Unfused>;
// clang-format on
}  // namespace cuda::graph

const Engines<RegionProblem>& Family<RegionProblem>::cuda_engines() { return cuda::graph::List::get(); }

}  // namespace minidnn
