// SPDX-License-Identifier: Apache-2.0
// cpu.conv.unfused_statistics computes the convolution first, then reduces y to its statistics (channel_sums.h).
#include "cpp/conv/channel_sums.h"

namespace minidnn {
namespace cpu::conv {

struct UnfusedStatistics final : UnfusedStatisticsEngine {
  std::string name() const override { return "cpu.conv.unfused_statistics"; }
};

}  // namespace cpu::conv

template const Engine<ConvStatisticsProblem>& engine_object<ConvStatisticsProblem, cpu::conv::UnfusedStatistics>();

}  // namespace minidnn
