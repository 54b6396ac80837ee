// SPDX-License-Identifier: Apache-2.0
// cpu.random.reference: the formulas of random_math.h, four elements at a time, for any strides. The elements are
// divided among threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/random/random.h"

namespace minidnn {
namespace cpu::random {
namespace {

// The smallest number of groups of four elements that a thread gets.
constexpr int64_t kGrain = 2048;

template <Random kind, class T> void compute(const RandomProblem& p, const RandomArgs& a) {
  const int64_t n = p.out.numel();
  const bool dense = is_row_major(p.out) && (kind != Random::dropout || is_row_major(p.x));
  cpu::parallel_for(ceil_div<int64_t>(n, 4), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) random_elements<kind, T>(p, a, group, n, dense);
  });
}

}  // namespace

struct Reference final : Engine<RandomProblem> {
  std::string name() const override { return "cpu.random.reference"; }
  std::string why_not(const RandomProblem&, const Device&) const override { return ""; }
  double estimate_us(const RandomProblem& p, const Device& d) const override {
    return roofline_us(random_flop(p), random_bytes(p), d, 0.05);
  }
  std::unique_ptr<Plan<RandomProblem>> build(const RandomProblem& p, const Device&, const Config&) const override {
    return make_plan<RandomProblem>([p](const RandomArgs& a, void*, Stream) {
      with_floating(p.out.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        if (p.kind == Random::uniform) compute<Random::uniform, T>(p, a);
        else if (p.kind == Random::normal) compute<Random::normal, T>(p, a);
        else compute<Random::dropout, T>(p, a);
      });
    });
  }
};

}  // namespace cpu::random

template const Engine<RandomProblem>& engine_object<RandomProblem, cpu::random::Reference>();

}  // namespace minidnn
