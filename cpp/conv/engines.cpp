// SPDX-License-Identifier: Apache-2.0
// The lists of the CPU engines of the conv family, which computes convolutions.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_list.h"

namespace minidnn {

namespace cpu::conv {
// clang-format off
using List = EngineList<ConvProblem,
    struct ImplicitGemm,
    struct ImplicitGemmFilter,
    struct SmallChannelFilter,
    struct GroupedNhwc,
    struct DirectNchw,
    struct Winograd,
    struct Im2colGemm,
    struct BiasReduction,
    struct Direct>;
using StatisticsList = EngineList<ConvStatisticsProblem,
    struct UnfusedStatistics>;
// clang-format on
}  // namespace cpu::conv

const Engines<ConvProblem>& Family<ConvProblem>::cpu_engines() { return cpu::conv::List::get(); }

const Engines<ConvStatisticsProblem>& Family<ConvStatisticsProblem>::cpu_engines() {
  return cpu::conv::StatisticsList::get();
}

}  // namespace minidnn
