// SPDX-License-Identifier: Apache-2.0
// cpu.activation.reference: computes the formulas of activation_math.h in a threaded loop without SIMD, for tensors
// with any strides.
#include "cpp/activation/activation.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::activation {
namespace {

// The least number of elements that justifies waking another thread.
constexpr int64_t kGrain = 16384;

template <class T, Activation mode, bool backward>
void compute(const ActivationProblem& p, const ActivationArgs& a) {
  cpu::parallel_for(p.out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) activation_element<T, mode, backward>(p, a, i);
  });
}

}  // namespace

struct Reference final : Engine<ActivationProblem> {
  std::string name() const override { return "cpu.activation.reference"; }
  std::string why_not(const ActivationProblem&, const Device&) const override { return ""; }
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, 0.5);
  }
  std::unique_ptr<Plan<ActivationProblem>> build(const ActivationProblem& p, const Device&,
                                                 const Config&) const override {
    return make_plan<ActivationProblem>([p](const ActivationArgs& a, void*, Stream) {
      with_floating(p.x.dtype, [&](auto type) {
        with_activation(p.mode, [&](auto mode) {
          using T = typename decltype(type)::type;
          if (p.direction == ActivationDirection::forward) compute<T, mode.value, false>(p, a);
          else compute<T, mode.value, true>(p, a);
        });
      });
    });
  }
};

}  // namespace cpu::activation

template const Engine<ActivationProblem>& engine_object<ActivationProblem, cpu::activation::Reference>();

}  // namespace minidnn
