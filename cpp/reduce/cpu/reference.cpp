// SPDX-License-Identifier: Apache-2.0
// cpu.reduce.reference: computes one element of the result at a time, for any strides and dtypes. Threads share the
// elements of the result. Sums are compensated.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/host_device/team.h"
#include "cpp/engine/engine_object.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {
namespace cpu::reduce {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements of x that one thread reads

template <ReduceKind kind, class Acc> void compute(const ReduceProblem& p, const ReduceArgs& a) {
  const ReduceView v = reduce_view(p);
  const int64_t outputs = p.y.numel(), count = v.reduced.numel();
  cpu::parallel_for(outputs, max_of<int64_t>(kGrain / max_of<int64_t>(count, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t from = v.kept.offset_of(o);
      auto state = reduction::identity<kind, Acc>();
      [[maybe_unused]] CompensatedSum<Acc> sum;
      for (int64_t i = 0; i < count; ++i) {
        auto e = reduction::element<kind, Acc>(p.mode,
                                               reduction::load<Acc>(p.x.dtype, a.x, from + v.reduced.offset_of(i)), i);
        if constexpr (kind == ReduceKind::sum && !reduction::is_integer<Acc>) sum.add(e.value);
        else state = reduction::combined<kind, Acc>(state, e);
      }
      if constexpr (kind == ReduceKind::sum && !reduction::is_integer<Acc>) state.value = sum.value();
      reduction::finish<kind, Acc>(p.mode, p.y, a.y, p.y.offset_of(o), state, count);
    }
  });
}

}  // namespace

struct Reference final : Engine<ReduceProblem> {
  std::string name() const override { return "cpu.reduce.reference"; }
  std::string why_not(const ReduceProblem&, const Device&) const override { return ""; }
  double estimate_us(const ReduceProblem& p, const Device& d) const override {
    return roofline_us(0, reduce_bytes(p), d, 0.02);
  }
  std::unique_ptr<Plan<ReduceProblem>> build(const ReduceProblem& p, const Device&, const Config&) const override {
    return make_plan<ReduceProblem>([p](const ReduceArgs& a, void*, Stream) {
      with_reduction(p, [&](auto kind, auto acc) { compute<kind, decltype(acc)>(p, a); });
    });
  }
};

}  // namespace cpu::reduce

template const Engine<ReduceProblem>& engine_object<ReduceProblem, cpu::reduce::Reference>();

}  // namespace minidnn
