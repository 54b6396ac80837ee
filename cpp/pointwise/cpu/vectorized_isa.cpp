// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pointwise.vectorized, compiled once per CPU instruction set.
#include "cpp/pointwise/cpu/element_loop.h"
#include "cpp/pointwise/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class A, Pointwise op> void function(const void* a, const void* b, const void* c, void* out, int64_t n) {
  PointwiseLoop<A>{static_cast<const A*>(a), static_cast<const A*>(b), static_cast<const A*>(c), static_cast<A*>(out),
                   n}(PointwiseName<op>{});
}
template <class T, Pointwise op> constexpr PointwiseFunction function_for() {
  if constexpr ((PointwiseOp<op>::operands & PointwiseTypeOf<T>::operand) != 0) return function<PointwiseType<T>, op>;
  else return nullptr;
}

template <class T> constexpr bool kIs16Bits = false;
template <> constexpr bool kIs16Bits<float16> = true;
template <> constexpr bool kIs16Bits<bfloat16> = true;

template <class T> void read(const void* from, int64_t stride, int64_t n, void* to) {
  using A = PointwiseType<T>;
  A* out = static_cast<A*>(to);
  if (stride == 1) {
    int64_t i = 0;
    if constexpr (kIs16Bits<T>) {
      i = n & -kStep;
      widen<Order::memory>(static_cast<const T*>(from), out, i);
    }
    for (; i < n; ++i) out[i] = read_element<T>(from, i);
  } else if (stride == 0) {
    const A v = read_element<T>(from, 0);
    for (int64_t i = 0; i < n; ++i) out[i] = v;
  } else if constexpr (kIs16Bits<T>) {
    // A vector converts many elements in the time of one.
    T gathered[kPointwiseSpan];
    for (int64_t begin = 0, count; begin < n; begin += count) {
      count = min_of(kPointwiseSpan, n - begin);
      for (int64_t i = 0; i < count; ++i) gathered[i] = static_cast<const T*>(from)[(begin + i) * stride];
      read<T>(gathered, 1, count, out + begin);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = read_element<T>(from, i * stride);
  }
}
template <class T> void write(const void* from, int64_t n, void* to, bool non_temporal) {
  using A = PointwiseType<T>;
  const A* x = static_cast<const A*>(from);
  alignas(64) T narrowed[kPointwiseSpan];
  T* out = non_temporal ? narrowed : static_cast<T*>(to);
  int64_t i = 0;
  if constexpr (kIs16Bits<T>) {
    i = n & -kStep;
    narrow<Order::memory>(x, out, i);
  }
  for (; i < n; ++i) write_element<T>(out, i, x[i]);
  if (non_temporal) copy_span(narrowed, static_cast<T*>(to), n, true);
}
template <class T> void write_strided(const void* from, int64_t n, void* to, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) write_element<T>(to, i * stride, static_cast<const PointwiseType<T>*>(from)[i]);
}
template <class A> void write_bool(const void* from, int64_t n, void* to, int64_t stride) {
  const A* x = static_cast<const A*>(from);
  uint8_t* out = static_cast<uint8_t*>(to);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] != A(0);
  else
    for (int64_t i = 0; i < n; ++i) out[i * stride] = x[i] != A(0);
}

template <class T> constexpr PointwiseTypeKernels kernels_of() {
  return {{read<T>, write<T>, write_strided<T>, write_bool<PointwiseType<T>>},
          {
#define MINIDNN_FUNCTION(name, group, operands, formula) function_for<T, Pointwise::name>(),
              MINIDNN_POINTWISE(MINIDNN_FUNCTION)
#undef MINIDNN_FUNCTION
          }};
}

}  // namespace

extern const PointwiseKernels pointwise_kernels;
const PointwiseKernels pointwise_kernels = {
    {kernels_of<float>(), kernels_of<double>(), kernels_of<float16>(), kernels_of<bfloat16>(), kernels_of<int8_t>(),
     kernels_of<uint8_t>(), kernels_of<int32_t>(), kernels_of<int64_t>(), kernels_of<bool>()},
    store_fence};

}  // namespace minidnn::MINIDNN_ISA
