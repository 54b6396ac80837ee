// SPDX-License-Identifier: Apache-2.0
// cpu.matmul.reference: the arithmetic of matmul_math.h in a plain loop over the elements of y, for any strides. The
// elements of y are divided among threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace cpu::matmul {
namespace {

// The smallest number of products (multiply-adds) for which it is worth waking another thread.
constexpr int64_t kGrain = 16384;

}  // namespace

struct Reference final : Engine<MatmulProblem> {
  std::string name() const override { return "cpu.matmul.reference"; }
  std::string why_not(const MatmulProblem& p, const Device&) const override { return matmul_why_not(p); }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    // This engine is slow, because it reads b along its columns.
    return roofline_us(matmul_flop(p), matmul_bytes(p), d, 0.15);
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device&, const Config&) const override {
    return make_plan<MatmulProblem>([p](const MatmulArgs& a, void*, Stream) {
      with_matmul_types(p, [&](auto from, auto to) {
        using T = typename decltype(from)::type;
        using Y = typename decltype(to)::type;
        cpu::parallel_for(p.y.numel(), ceil_div(kGrain, sizes_of(p).k + 1), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) matmul_element<T, Y>(p, a, i);
        });
      });
    });
  }
};

}  // namespace cpu::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cpu::matmul::Reference>();

}  // namespace minidnn
