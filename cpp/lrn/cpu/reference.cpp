// SPDX-License-Identifier: Apache-2.0
// cpu.lrn.reference: computes one element at a time with the functions of lrn_math.h. The backward function first
// computes the weight g of every element (see lrn_math.h), and then dx.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/lrn/lrn.h"

namespace minidnn {
namespace cpu::lrn {
namespace {

constexpr int64_t kGrain = 512;  // the least number of elements that justifies waking another thread

}  // namespace

struct Reference final : Engine<LrnProblem> {
  std::string name() const override { return "cpu.lrn.reference"; }
  std::string why_not(const LrnProblem&, const Device&) const override { return ""; }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, 0.02);
  }
  size_t workspace_bytes(const LrnProblem& p, const Device&, const Config&) const override {
    return local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device&, const Config&) const override {
    return make_plan<LrnProblem>([p](const LrnArgs& a, void* workspace, Stream) {
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

}  // namespace cpu::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cpu::lrn::Reference>();

}  // namespace minidnn
