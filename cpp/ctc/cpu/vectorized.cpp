// SPDX-License-Identifier: Apache-2.0
// cpu.ctc.vectorized: a thread computes a sequence, with the loops of vectorized_isa.cpp over its states and classes.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/ctc/cpu/vectorized_kernel.h"
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::ctc {
namespace {

constexpr double kGrain = 1 << 16;  // the least FLOP that one thread executes

int64_t threads_of(const CtcProblem& p, const Device& d) {
  const int64_t useful = 1 + int64_t(ctc_flop(p) / double(cpu::work_size(int64_t(kGrain))));
  return std::max(std::min({p.batch(), int64_t(d.sm_count), useful}), int64_t(1));
}
size_t losses_bytes(const CtcProblem& p) { return size_t(round_up(p.batch() * int64_t(sizeof(float)), 64)); }

}  // namespace

struct Vectorized final : Engine<CtcProblem> {
  std::string name() const override { return "cpu.ctc.vectorized"; }
  std::string why_not(const CtcProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    const bool contiguous = p.x.stride[2] == 1 && (p.direction == CtcDirection::forward || p.dx.stride[2] == 1);
    return contiguous || p.classes() == 1 ? "" : "needs contiguous rows of classes";
  }
  // A step of a sequence takes 0.1 us besides its arithmetic. Measured on a Zen 4 core (2026-11).
  double estimate_us(const CtcProblem& p, const Device& d) const override {
    const double threads = double(threads_of(p, d)), threads_at_work = threads / std::max(d.sm_count, 1);
    return roofline_us(ctc_flop(p), ctc_bytes(p), d, threads_at_work) + 0.1 * double(p.steps() * p.batch()) / threads;
  }
  size_t workspace_bytes(const CtcProblem& p, const Device& d, const Config&) const override {
    return losses_bytes(p) + 64 + size_t(threads_of(p, d) * CtcArena::floats(p)) * sizeof(float);
  }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device& d, const Config&) const override {
    // Rows that are much longer than a cache line, and together larger than the caches.
    const int64_t row_bytes = p.classes() * itemsize(p.x.dtype);
    const bool non_temporal = row_bytes >= 2048 && cpu::non_temporal(double(p.steps() * p.batch() * row_bytes));
    const int64_t threads = threads_of(p, d);
    return make_plan<CtcProblem>([=, kernels = &ctc_kernels()](const CtcArgs& a, void* workspace, Stream) {
      const bool reduced = p.reduction != CtcReduction::none;
      float* const losses = ctc_losses<float>(p, a, workspace);
      const auto begin = reinterpret_cast<uintptr_t>(workspace) + losses_bytes(p) + 63;
      auto arenas = reinterpret_cast<float*>(begin & ~uintptr_t(63));
      const auto compute = [&](int64_t b, const CtcArena& arena) {
        SingleThread team;
        const CtcSequence s = minidnn::ctc::sequence(p, a, b, team);
        if (p.direction == CtcDirection::backward)
          return kernels->backward(p, a, s, arena, ctc_gradient<float>(p, a, s, team), non_temporal);
        const CtcNumber<float> v = kernels->forward(p, a, s, arena);
        losses[b] = ctc_loss(p, s, v, minidnn::ctc::valid(p, a, s, team));
      };
      // Threads take several sequences at a time if there are many. Few are better balanced, as lengths differ.
      const int64_t batch = max_of(p.batch() / (8 * threads), int64_t(1));
      cpu::parallel_batches(p.batch(), batch, threads, [&](int64_t first, int64_t end, int64_t thread) {
        const CtcArena arena{arenas + thread * CtcArena::floats(p), CtcArena::length_of(p)};
        for (int64_t b = first; b < end; ++b) compute(b, arena);
      });
      SingleThread team;
      if (p.direction == CtcDirection::forward && reduced) ctc_total(p, a, losses, team);
    });
  }
};

}  // namespace cpu::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cpu::ctc::Vectorized>();

}  // namespace minidnn
