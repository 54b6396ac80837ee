// SPDX-License-Identifier: Apache-2.0
// cpu.conv.unfused_statistics: computes the convolution first, and then the sums of y and y^2 per channel by two
// reductions of y. Its base class is in channel_sums.h.
#include "cpp/conv/channel_sums.h"

namespace minidnn {
namespace cpu::conv {

struct UnfusedStatistics final : UnfusedStatisticsEngine {
  std::string name() const override { return "cpu.conv.unfused_statistics"; }
};

}  // namespace cpu::conv

template const Engine<ConvStatisticsProblem>& engine_object<ConvStatisticsProblem, cpu::conv::UnfusedStatistics>();

}  // namespace minidnn
