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

}  // namespace

struct Vectorized final : Engine<RandomProblem> {
  std::string name() const override { return "cpu.random.vectorized"; }
  std::string why_not(const RandomProblem& p, const Device&) const override {
    if (p.out.dtype == DType::float64) return "float64 is not supported";
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
  if (type == DType::float32)
    return random_kernels().loops[int64_t(Random::dropout)][int64_t(type)](a, false, i, i + n);
  for (int64_t done = 0; done < n; done += 4) {
    double x[4] = {}, y[4];
    const auto bytes = size_t(min_of<int64_t>(4, n - done)) * sizeof(double);
    std::memcpy(x, static_cast<const double*>(a.x) + done, bytes);
    random_four<Random::dropout>(a, uint64_t(i + done) / 4, x, y);
    std::memcpy(static_cast<double*>(a.out) + done, y, bytes);
  }
}

template const Engine<RandomProblem>& engine_object<RandomProblem, cpu::random::Vectorized>();

}  // namespace minidnn
