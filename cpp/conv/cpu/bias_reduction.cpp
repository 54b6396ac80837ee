// SPDX-License-Identifier: Apache-2.0
// cpu.conv.bias_reduction computes db (the gradient of the bias) as a reduction of dy. Its base class is in
// channel_sums.h.
#include "cpp/conv/channel_sums.h"

namespace minidnn {
namespace cpu::conv {

struct BiasReduction final : BiasReductionEngine {
  std::string name() const override { return "cpu.conv.bias_reduction"; }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::BiasReduction>();

}  // namespace minidnn
