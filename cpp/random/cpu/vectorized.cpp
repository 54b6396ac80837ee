// SPDX-License-Identifier: Apache-2.0
// cpu.random.vectorized: the vectorised loops of vectorized_isa.cpp over row-major tensors. The elements are divided
// among threads.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/random/cpu/vectorized_kernel.h"
#include "cpp/random/random.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::random {
namespace {

// The smallest number of elements that a thread gets.
constexpr int64_t kBlock = 8192;

// Dropout of the elements [i, i + n), in groups of four with common random words. Advances the pointers of `a`.
template <class A> void dropout_by_fours(RandomArgs& a, int64_t i, int64_t n) {
  for (int64_t count; n > 0; i += count, n -= count) {
    const int64_t first = i % 4;
    count = min_of(4 - first, n);
    A x[4] = {}, y[4];
    std::memcpy(x + first, a.x, size_t(count) * sizeof(A));
    random_four<Random::dropout>(a, uint64_t(i) / 4, x, y);
    std::memcpy(a.out, y + first, size_t(count) * sizeof(A));
    a.x = static_cast<const A*>(a.x) + count;
    a.out = static_cast<A*>(a.out) + count;
  }
}

}  // namespace

struct Vectorized final : Engine<RandomProblem> {
  std::string name() const override { return "cpu.random.vectorized"; }
  std::string why_not(const RandomProblem& p, const Device&) const override {
    const bool row_major = is_row_major(p.out) && (p.kind != Random::dropout || is_row_major(p.x));
    return row_major ? "" : "needs row-major tensors";
  }
  double estimate_us(const RandomProblem& p, const Device& d) const override {
    return roofline_us(random_flop(p), random_bytes(p), d, 0.5);
  }
  std::unique_ptr<Plan<RandomProblem>> build(const RandomProblem& p, const Device&, const Config&) const override {
    const RandomLoop loop = random_kernels().loops[int64_t(p.kind)][int64_t(p.out.dtype)];
    const int64_t n = p.out.numel();
    const int64_t bytes = itemsize(p.out.dtype);
    const bool non_temporal = cpu::non_temporal(double(n * bytes));
    return make_plan<RandomProblem>([=](const RandomArgs& a, void*, Stream) {
      const int64_t block = cpu::work_size(kBlock, 4);
      cpu::parallel_for(ceil_div(n, block), 1, [&](int64_t begin, int64_t end) {
        RandomArgs part = a;
        part.x = a.x ? static_cast<const char*>(a.x) + begin * block * bytes : nullptr;
        part.out = static_cast<char*>(a.out) + begin * block * bytes;
        loop(part, non_temporal, begin * block, min_of(n, end * block));
      });
    });
  }
};

}  // namespace cpu::random

void dropout_on_span(const RandomArgs& a, DType type, int64_t i, int64_t n) {
  RandomArgs rest = a;
  if (type != DType::float32) return cpu::random::dropout_by_fours<double>(rest, i, n);
  // The loop starts at a multiple of 4.
  const int64_t before = min_of(-i & 3, n);
  cpu::random::dropout_by_fours<float>(rest, i, before);
  random_kernels().loops[int64_t(Random::dropout)][int64_t(type)](rest, false, i + before, i + n);
}

template const Engine<RandomProblem>& engine_object<RandomProblem, cpu::random::Vectorized>();

}  // namespace minidnn
