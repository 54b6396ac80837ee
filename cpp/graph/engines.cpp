// SPDX-License-Identifier: Apache-2.0
// The list of the CPU engines of regions of graphs.
#include "cpp/engine/engine_list.h"
#include "cpp/graph/region.h"

namespace minidnn {

namespace cpu::graph {
// clang-format off
using List = EngineList<RegionProblem,
    struct LibraryOp,
    struct FoldedConv,
    struct Elementwise,
    struct RowReduction,
    struct Unfused>;
// clang-format on
}  // namespace cpu::graph

const Engines<RegionProblem>& Family<RegionProblem>::cpu_engines() { return cpu::graph::List::get(); }

}  // namespace minidnn
