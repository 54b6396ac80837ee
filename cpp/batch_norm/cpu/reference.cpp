// SPDX-License-Identifier: Apache-2.0
// cpu.batch_norm.reference: the formulas of batch_norm_math.h. First, threads share the channels: one thread computes
// the statistics of a channel. Then threads share the elements of the result, and compute one contiguous span at a
// time.
#include "cpp/batch_norm/cpu/reference_loops.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::batch_norm {

struct Reference final : Engine<BatchNormProblem> {
  std::string name() const override { return "cpu.batch_norm.reference"; }
  std::string why_not(const BatchNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p), norm_bytes(p), d, 0.2);
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<BatchNormProblem>(
        [s = norm_spaces(p), dtype = p.x.dtype, direction = p.direction](const BatchNormArgs& a, void*, Stream) {
          with_floating(dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            compute<T>(direction, s, a);
          });
        });
  }
};

}  // namespace cpu::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cpu::batch_norm::Reference>();

}  // namespace minidnn
