// SPDX-License-Identifier: Apache-2.0
// Lists the CUDA engines of conv.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cuda::conv {
// clang-format off
using List = EngineList<ConvProblem,
    struct Wgmma,
    struct Wgmma3xtf32,
    struct WgmmaHalo,
    struct FirstLayer,
    struct WgmmaPackedTaps,
    struct Mma,
    struct Mma3xtf32,
    struct Depthwise,
    struct Grouped,
    struct DirectNchw,
    struct FirstLayerFilter,
    struct Winograd,
    struct Simt,
    struct Im2colGemm,
    struct BiasReduction,
    struct Direct>;
using StatisticsList = EngineList<ConvStatisticsProblem,
    struct WgmmaStatistics,
    struct UnfusedStatistics>;
// clang-format on
}  // namespace cuda::conv

const Engines<ConvProblem>& Family<ConvProblem>::cuda_engines() { return cuda::conv::List::get(); }

const Engines<ConvStatisticsProblem>& Family<ConvStatisticsProblem>::cuda_engines() {
  return cuda::conv::StatisticsList::get();
}

}  // namespace minidnn
