// SPDX-License-Identifier: Apache-2.0
// cpu.pooling.reference: computes the formulas of pooling_math.h in a loop without SIMD, for any strides. Threads share
// the elements of the result.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace cpu::pooling {
namespace {

constexpr double kGrainFlop = 1e5;  // the least number of FLOP that one thread computes

template <class T, PoolingMode mode>
void compute(const PoolingProblem& p, const PoolingArgs& a) {
  int64_t items = p.out.numel(), grain = int64_t(kGrainFlop / std::max(pooling_flop(p) / double(items), 1.0)) + 1;
  cpu::parallel_for(items, grain, [&](int64_t begin, int64_t end) {
    if (p.direction == PoolingDirection::forward)
      for (int64_t i = begin; i < end; ++i) pool_forward_element<T, mode>(p, a, i);
    else
      for (int64_t i = begin; i < end; ++i) pool_backward_element<T, mode>(p, a, i);
  });
}

}  // namespace

struct Reference final : Engine<PoolingProblem> {
  std::string name() const override { return "cpu.pooling.reference"; }
  std::string why_not(const PoolingProblem&, const Device&) const override { return ""; }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    return roofline_us(pooling_flop(p), pooling_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device&, const Config&) const override {
    return make_plan<PoolingProblem>([p](const PoolingArgs& a, void*, Stream) {
      with_floating(p.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (p.mode == PoolingMode::max) compute<T, PoolingMode::max>(p, a);
        else if (p.mode == PoolingMode::lp) compute<T, PoolingMode::lp>(p, a);
        else if (p.mode == PoolingMode::avg) compute<T, PoolingMode::avg>(p, a);
        else compute<T, PoolingMode::avg_exclude_padding>(p, a);
      });
    });
  }
};

}  // namespace cpu::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cpu::pooling::Reference>();

}  // namespace minidnn
