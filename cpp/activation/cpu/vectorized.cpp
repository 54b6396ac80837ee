// SPDX-License-Identifier: Apache-2.0
// cpu.activation.vectorized: computes the formulas of activation_math.h in vectorised loops (vectorized_isa.cpp), for
// dense tensors in memory order. Tensors with other strides are copied to buffers and back, a span at a time.
#include "cpp/activation/activation.h"
#include "cpp/activation/cpu/vectorized_kernel.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/simd/gemm_microkernel.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::activation {
namespace {

// Threads divide a tensor at multiples of kChunk, so that the part of each thread begins at a cache line.
constexpr int64_t kChunk = 2048;

bool is_backward(const ActivationProblem& p) { return p.direction == ActivationDirection::backward; }
bool is_in_order(const ActivationProblem& p) {
  return is_dense(p.x) && same_strides(p.x, p.out) && (!is_backward(p) || same_strides(p.x, p.dy));
}

struct Loop {
  ActivationLoop loop;
  decltype(ActivationLoops::apply) apply;

  explicit Loop(const ActivationProblem& p) {
    const ActivationLoops& loops = activation_kernels().of[int64_t(p.x.dtype)];
    loop = (is_backward(p) ? loops.backward : loops.forward)[int64_t(p.mode)];
    apply = loops.apply;
  }
  void operator()(const void* x, const void* dy, void* out, int64_t n, double alpha, bool non_temporal) const {
    apply(loop, x, dy, out, n, alpha, non_temporal);
  }
};

// Vectors of doubles have all functions but the normal distribution.
bool calls_libm(const ActivationProblem& p) { return p.x.dtype == DType::float64 && p.mode == Activation::gelu; }

// Returns the number of elements that one thread processes in about 5 us. It is the least work that justifies another
// thread.
int64_t grain_of(const ActivationProblem& p) {
  const bool cheap = p.mode <= Activation::leaky_relu || p.mode == Activation::hardswish;
  if (p.x.dtype == DType::float64) return cpu::work_size(cheap ? 16384 : calls_libm(p) ? 1024 : 4096);
  return cpu::work_size(cheap ? 32768 : 8192);
}

}  // namespace

struct Vectorized final : Engine<ActivationProblem> {
  std::string name() const override { return "cpu.activation.vectorized"; }
  std::string why_not(const ActivationProblem&, const Device&) const override { return ""; }
  // The vectorised loops reach twice the FLOP/s of the loops without SIMD, and 2.5 times their memory bandwidth
  // (measured on 2 Zen 3 cores, 2026-11). In float64, gelu calls functions of libm for each element.
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, calls_libm(p) ? 0.5 : is_in_order(p) ? 2 : 1);
  }
  std::unique_ptr<Plan<ActivationProblem>> build(const ActivationProblem& p, const Device&,
                                                 const Config&) const override {
    if (!is_in_order(p)) return plan_with_buffers(p);
    int64_t n = p.x.numel(), bytes = itemsize(p.x.dtype);
    bool non_temporal = cpu::non_temporal(double(n * bytes));
    int64_t chunk = cpu::work_size(kChunk);
    return make_plan<ActivationProblem>(
        [=, compute = Loop(p), grain = grain_of(p) / chunk](const ActivationArgs& a, void*, Stream) {
          cpu::parallel_for(ceil_div(n, chunk), grain, [&](int64_t begin, int64_t end) {
            begin *= chunk;
            end = min_of(end * chunk, n);
            auto at = [&](const void* data) { return data ? static_cast<const char*>(data) + begin * bytes : nullptr; };
            compute(at(a.x), at(a.dy), static_cast<char*>(a.out) + begin * bytes, end - begin, a.alpha, non_temporal);
          });
        });
  }

 private:
  static std::unique_ptr<Plan<ActivationProblem>> plan_with_buffers(const ActivationProblem& p) {
    const JointIndexing all = joint_indexing({p.out, p.x, is_backward(p) ? p.dy : p.x});
    const int64_t n = p.x.numel(), grain = grain_of(p) / kPointwiseSpan;
    return make_plan<ActivationProblem>(
        [all, n, grain, compute = Loop(p), dtype = p.x.dtype](const ActivationArgs& a, void*, Stream) {
          cpu::parallel_for(ceil_div(n, kPointwiseSpan), grain, [&](int64_t begin, int64_t end) {
            alignas(64) char buffers[2][kPointwiseSpan * sizeof(double)];
            for (int64_t i = begin * kPointwiseSpan; i < min_of(end * kPointwiseSpan, n); i += kPointwiseSpan) {
              const int64_t count = min_of(kPointwiseSpan, n - i);
              gather_span({all.elements, all.access[1], dtype}, a.x, i, count, buffers[0]);
              if (a.dy) gather_span({all.elements, all.access[2], dtype}, a.dy, i, count, buffers[1]);
              compute(buffers[0], buffers[1], buffers[0], count, a.alpha, false);
              scatter_span({all.elements, all.access[0], dtype}, buffers[0], i, count, a.out);
            }
          });
        });
  }
};

}  // namespace cpu::activation

FloatsFunction activation_on_floats(Activation mode) {
  if (mode == Activation::identity) return {};
  const ActivationLoops& loops = activation_kernels().of[int64_t(DType::float32)];
  return {loops.forward[int64_t(mode)], loops.apply};
}

ActivationSpan activation_on_span(const ActivationProblem& p) {
  return [compute = cpu::activation::Loop(p)](const void* x, const void* dy, void* out, int64_t n, double alpha) {
    compute(x, dy, out, n, alpha, false);
  };
}

template const Engine<ActivationProblem>& engine_object<ActivationProblem, cpu::activation::Vectorized>();

}  // namespace minidnn
