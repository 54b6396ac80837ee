// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.activation.vectorized, compiled once per CPU instruction set: the formulas of activation_math.h over
// contiguous elements.
#include "cpp/activation/cpu/normal_vector.h"
#include "cpp/activation/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

#ifdef __AVX512F__
template <class T, bool backward>
inline __attribute__((always_inline)) void compute_gelu(const T* x, const T* dy, T* out, int64_t n) {
  auto f = [](Floats x, Floats dy) __attribute__((always_inline)) {
    const auto normal = normal_of_vector<T>(x);
    if constexpr (backward) return dy * (normal.cdf + x * normal.density);
    else return x * normal.cdf;
  };
  for (n &= -kStep; n > 0; n -= 2 * kFloats, x += 2 * kFloats, dy += 2 * kFloats, out += 2 * kFloats) {
    const Pair xs = load_pair(x), dys = backward ? load_pair(dy) : xs;
    store_pair(out, {f(xs.first, dys.first), f(xs.second, dys.second)});
  }
}
#endif

template <class T, Activation mode, bool backward>
inline __attribute__((always_inline)) void compute(const void* x, const void* dy, void* out, int64_t n, double alpha) {
  auto xs = static_cast<const T*>(x), dys = static_cast<const T*>(dy);
  auto outs = static_cast<T*>(out);
#ifdef __AVX512F__
  if constexpr (mode == Activation::gelu && sizeof(T) < 8) return compute_gelu<T, backward>(xs, dys, outs, n);
#endif
  using Acc = Accumulator<T>;
  each(xs, dys, outs, n, [a = Acc(alpha)](Acc x, Acc dy) __attribute__((always_inline)) {
    if constexpr (backward) return dy * activate_gradient<mode>(x, a);
    else return activate<mode>(x, a);
  });
}

template <class T> struct Loops {
  template <Activation mode, bool backward>
  static void loop(const void* x, const void* dy, void* out, int64_t n, double alpha) {
    compute<T, mode, backward>(x, dy, out, n, alpha);
  }
};
template <> struct Loops<bfloat16> {
  // With jump threading, GCC 12 emits the code of an iteration for bfloat16 relu four times, once per combination of
  // the branches of its two elements.
  template <Activation mode, bool backward>
  __attribute__((optimize("no-thread-jumps"))) static void loop(const void* x, const void* dy, void* out, int64_t n,
                                                                double alpha) {
    compute<bfloat16, mode, backward>(x, dy, out, n, alpha);
  }
};

template <class T>
void apply(ActivationLoop loop, const void* x, const void* dy, void* out, int64_t n, double alpha, bool non_temporal) {
  map_all(static_cast<const T*>(x), static_cast<const T*>(dy ? dy : x), static_cast<T*>(out), n, non_temporal,
          [=](const T* x, const T* dy, T* out, int64_t n) { loop(x, dy, out, n, alpha); });
  if (non_temporal) store_fence();
}

template <class T, int... mode> constexpr ActivationLoops loops() {
  return {{Loops<T>::template loop<Activation(mode), false>...},
          {Loops<T>::template loop<Activation(mode), true>...},
          apply<T>};
}
template <int... mode> constexpr ActivationKernels table() {
  return {{loops<float, mode...>(), loops<double, mode...>(), loops<float16, mode...>(), loops<bfloat16, mode...>()}};
}

}  // namespace

extern const ActivationKernels activation_kernels;
const ActivationKernels activation_kernels = table<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>();

}  // namespace minidnn::MINIDNN_ISA
