// SPDX-License-Identifier: Apache-2.0
// cuda.conv.unfused_statistics: an engine that makes two launches. The first computes the convolution. The second
// reduces y to the statistics of each channel (channel_sums.h).
#include "cpp/conv/channel_sums.h"

namespace minidnn {
namespace cuda::conv {

struct UnfusedStatistics final : UnfusedStatisticsEngine {
  std::string name() const override { return "cuda.conv.unfused_statistics"; }
  unsigned traits() const override { return kNeedsJit; }
};

}  // namespace cuda::conv

template const Engine<ConvStatisticsProblem>& engine_object<ConvStatisticsProblem, cuda::conv::UnfusedStatistics>();

}  // namespace minidnn
