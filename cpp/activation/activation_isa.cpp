// SPDX-License-Identifier: Apache-2.0
#include "cpp/activation/activation_kernels.h"
#include "cpp/cpu/runs.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <Activation mode, bool backward>
inline __attribute__((always_inline)) float element(float x, float dy, float alpha) {
  if constexpr (backward) return dy * activate_gradient<mode>(x, alpha);
  else return activate<mode>(x, alpha);
}

template <Activation mode, bool backward>
void floats(const void* x_data, const void* dy_data, void* out_data, int64_t n, float alpha) {
  auto x = static_cast<const float*>(x_data), dy = static_cast<const float*>(dy_data);
  auto out = static_cast<float*>(out_data);
  n &= -kStep;
#pragma GCC ivdep  // out is what is read, or apart from it
  for (int64_t i = 0; i < n; ++i) out[i] = element<mode, backward>(x[i], backward ? dy[i] : 0.0f, alpha);
}

// Two bfloat16 in a word, each of which is a float but for zeros: no vector need be taken apart.
typedef uint32_t Two __attribute__((aligned(2), may_alias));
// Jumps are not to be threaded: for relu's two branches GCC 12 would round thrice, and blend.
template <Activation mode, bool backward>
__attribute__((optimize("no-thread-jumps"))) void bfloat16s(const void* x_data, const void* dy_data, void* out_data,
                                                            int64_t n, float alpha) {
  auto x = static_cast<const Two*>(x_data), dy = static_cast<const Two*>(dy_data);
  auto out = static_cast<Two*>(out_data);
  n = (n & -kStep) / 2;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t xs = x[i], dys = backward ? dy[i] : 0;
    const float low = element<mode, backward>(detail::float_of(xs << 16), detail::float_of(dys << 16), alpha);
    const float high =
        element<mode, backward>(detail::float_of(xs & 0xffff0000), detail::float_of(dys & 0xffff0000), alpha);
    out[i] = nearest_bfloat16(low) >> 16 | (nearest_bfloat16(high) & 0xffff0000);
  }
}

void apply_float16(ActivationLoop loop, const void* x_data, const void* dy_data, void* out_data, int64_t n, float alpha,
                   bool past_caches) {
  auto x = static_cast<const float16*>(x_data), dy = static_cast<const float16*>(dy_data);
  alignas(64) float xs[kRun], dys[kRun];
  write_all<Order::lanes>(static_cast<float16*>(out_data), n, past_caches, [&](int64_t i, int64_t run, float* out) {
    loop(read_run<Order::lanes>(x + i, xs, run), dy ? read_run<Order::lanes>(dy + i, dys, run) : nullptr, out,
         whole_steps(run), alpha);
  });
  if (past_caches) streams_end();
}

template <class T>
void apply(ActivationLoop loop, const void* x_data, const void* dy_data, void* out_data, int64_t n, float alpha,
           bool past_caches) {
  auto x = static_cast<const T*>(x_data), dy = static_cast<const T*>(dy_data);
  auto out = static_cast<T*>(out_data);
  alignas(64) T results[kRun];
  auto few = [&](int64_t i, int64_t count) {  // less than a step, with zeros behind it
    T xs[kStep] = {}, dys[kStep] = {};
    __builtin_memcpy(xs, x + i, size_t(count) * sizeof(T));
    if (dy) __builtin_memcpy(dys, dy + i, size_t(count) * sizeof(T));
    loop(xs, dys, results, kStep, alpha);
    __builtin_memcpy(out + i, results, size_t(count) * sizeof(T));
  };
  int64_t i = 0;
  if (past_caches) {
    for (int64_t head = min_of(until_line(out), n); i < head;) {
      int64_t count = min_of(kStep, head - i);
      few(i, count);
      i += count;
    }
    for (; i + kRun <= n; i += kRun) {
      loop(x + i, dy ? dy + i : nullptr, results, kRun, alpha);
      stream(results, out + i, kRun * int64_t(sizeof(T)));
    }
    streams_end();
  }
  const int64_t whole = (n - i) & -kStep;
  loop(x + i, dy ? dy + i : nullptr, out + i, whole, alpha);
  if (i + whole < n) few(i + whole, n - i - whole);
}

template <int... mode> constexpr ActivationKernels table() {
  constexpr ActivationLoops of_float = {
      {floats<Activation(mode), false>...}, {floats<Activation(mode), true>...}, apply<float>};
  constexpr ActivationLoops of_float16 = {
      {floats<Activation(mode), false>...}, {floats<Activation(mode), true>...}, apply_float16};
  constexpr ActivationLoops of_bfloat16 = {
      {bfloat16s<Activation(mode), false>...}, {bfloat16s<Activation(mode), true>...}, apply<bfloat16>};
  return {{of_float, {}, of_float16, of_bfloat16}};
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels = table<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>();

}  // namespace minidnn::MINIDNN_ISA
