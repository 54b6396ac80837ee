// SPDX-License-Identifier: Apache-2.0
// cpu.norm.local_reference: the shared maths, one element at a time. Backward computes g of all elements first.
#include "cpp/core/thread_pool.h"
#include "cpp/norm/local_norm.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 512;  // elements that justify waking one more thread

struct Reference final : Engine<LocalNormProblem> {
  std::string name() const override { return "cpu.norm.local_reference"; }
  std::string why_not(const LocalNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, 0.02);
  }
  size_t workspace_bytes(const LocalNormProblem& p, const Device&, const Config&) const override {
    return local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device&,
                                                const Config&) const override {
    return make_plan<LocalNormProblem>([p](const LocalNormArgs& a, void* workspace, Stream) {
      with_floating(p.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        auto each = [&](auto body) {
          cpu::parallel_for(p.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) body(i);
          });
        };
        if (!p.backward) return each([&](int64_t i) { local_norm_forward<T>(p, a, i); });
        auto* const g = static_cast<Accumulator<T>*>(workspace);
        each([&](int64_t i) { local_norm_weight<T>(p, a, g, i); });
        each([&](int64_t i) { local_norm_backward<T>(p, a, g, i); });
      });
    });
  }
};

}  // namespace

const Engines<LocalNormProblem>& Family<LocalNormProblem>::cpu_engines() {
  static const Reference reference;
  static const Engines<LocalNormProblem> all{&local_norm_across(), &local_norm_around(), &reference};
  return all;
}

}  // namespace minidnn
