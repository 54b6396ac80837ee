// SPDX-License-Identifier: Apache-2.0
// cuda.conv.bias_reduction: an engine that computes db, the gradient of the bias. db is the sum of dy over all
// dimensions except the channels. The base class in channel_sums.h computes this sum.
#include "cpp/conv/channel_sums.h"

namespace minidnn {
namespace cuda::conv {

struct BiasReduction final : BiasReductionEngine {
  std::string name() const override { return "cuda.conv.bias_reduction"; }
  unsigned traits() const override { return kNeedsJit; }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::BiasReduction>();

}  // namespace minidnn
