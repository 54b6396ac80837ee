// SPDX-License-Identifier: Apache-2.0
// Softmax down the columns of a strip, which is n adjacent columns. Each lane of a vector computes one column. n is a
// multiple of kStep. Sums are compensated, as in rows_isa.cpp. Only X_isa.cpp files of this folder include this header.
#pragma once
#include "cpp/simd/columns.h"
#include "cpp/softmax/cpu/log_gradient.h"
#include "cpp/softmax/cpu/vectorized_kernel.h"

namespace minidnn::MINIDNN_ISA {
namespace {

static_assert(kWholeColumns % kStep == 0);

// One float per column. For bfloat16, the even columns come before the odd ones.
using PerColumn = Columns<float>;

// fold() of columns.h for 16-bit types
template <class F>
inline __attribute__((always_inline)) void fold(float* values, const bfloat16* a, const bfloat16* b, int64_t n, F f) {
  auto as = reinterpret_cast<const Two*>(a), bs = reinterpret_cast<const Two*>(b);
  const int64_t half = (n & -kStep) / 2;
  float* odd = values + half;
#pragma GCC ivdep
  for (int64_t j = 0; j < half; ++j) {
    const uint32_t x = as[j], y = bs[j];
    values[j] = f(values[j], detail::float_of(x << 16), detail::float_of(y << 16));
    odd[j] = f(odd[j], detail::float_of(x & 0xffff0000), detail::float_of(y & 0xffff0000));
  }
}
template <class F>
inline __attribute__((always_inline)) void fold(float* values, const float16* a, const float16* b, int64_t n, F f) {
  PerColumn as, bs;
  widen<Order::memory>(a, as.at, n);
  if (b != a) widen<Order::memory>(b, bs.at, n);
  fold(values, as.at, b != a ? bs.at : as.at, n, f);
}
// Computes out[j] = f(a[j], b[j], values[j], other[j]) for n columns.
template <class A, class F>
inline __attribute__((always_inline)) void each_column(const A* a, const A* b, const A* values, const A* other, A* out,
                                                       int64_t n, F f) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) out[j] = f(a[j], b[j], values[j], other[j]);
}
template <class F>
inline __attribute__((always_inline)) void each_column(const bfloat16* a, const bfloat16* b, const float* values,
                                                       const float* other, bfloat16* out, int64_t n, F f) {
  auto as = reinterpret_cast<const Two*>(a), bs = reinterpret_cast<const Two*>(b);
  auto outs = reinterpret_cast<Two*>(out);
  const int64_t half = (n & -kStep) / 2;
#pragma GCC ivdep
  for (int64_t j = 0; j < half; ++j) {
    const uint32_t x = as[j], y = bs[j];
    const float even = f(detail::float_of(x << 16), detail::float_of(y << 16), values[j], other[j]);
    const float odd =
        f(detail::float_of(x & 0xffff0000), detail::float_of(y & 0xffff0000), values[half + j], other[half + j]);
    outs[j] = nearest_bfloat16(even) >> 16 | (nearest_bfloat16(odd) & 0xffff0000);
  }
}
template <class F>
inline __attribute__((always_inline)) void each_column(const float16* a, const float16* b, const float* values,
                                                       const float* other, float16* out, int64_t n, F f) {
  PerColumn as, bs;
  widen<Order::memory>(a, as.at, n);
  if (b != a) widen<Order::memory>(b, bs.at, n);
  each_column(as.at, b != a ? bs.at : as.at, values, other, as.at, n, f);
  narrow<Order::memory>(as.at, out, n);
}
// Computes out[j] = e[j] * values[j]. For bfloat16, `e` and `values` have the even columns first.
template <class A> void scale_columns(const A* e, const A* values, A* out, int64_t n) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) out[j] = e[j] * values[j];
}
[[maybe_unused]] void scale_columns(const float* e, const float* values, bfloat16* out, int64_t n) {
  auto outs = reinterpret_cast<Two*>(out);
  const int64_t half = (n & -kStep) / 2;
  for (int64_t j = 0; j < half; ++j)
    outs[j] =
        nearest_bfloat16(e[j] * values[j]) >> 16 | (nearest_bfloat16(e[half + j] * values[half + j]) & 0xffff0000);
}
[[maybe_unused]] void scale_columns(const float* e, const float* values, float16* out, int64_t n) {
  PerColumn products;
  scale_columns(e, values, products.at, n);
  narrow<Order::memory>(products.at, out, n);
}

// add_exponentials() of columns.h for 16-bit types. For bfloat16, `largest`, `e` and `sum` have the even columns first.
[[maybe_unused]] void add_exponentials(const bfloat16* x, float scale, const float* largest, float* e, float* sum,
                                       int64_t n) {
  auto xs = reinterpret_cast<const Two*>(x);
  const int64_t half = (n & -kStep) / 2;
  for (int64_t j = 0; j < half; ++j) {
    e[j] = detail::float_of(xs[j] << 16);
    e[half + j] = detail::float_of(xs[j] & 0xffff0000);
  }
  add_exponentials(e, scale, largest, e, sum, n);
}
[[maybe_unused]] void add_exponentials(const float16* x, float scale, const float* largest, float* e, float* sum,
                                       int64_t n) {
  widen<Order::memory>(x, e, n);
  add_exponentials(e, scale, largest, e, sum, n);
}
// `width` adjacent columns of a tensor, whose rows are `pitch` elements apart. Memory after a row may be read up to
// `end`.
template <class T> struct Strip {
  const T* first;
  int64_t pitch, width;
  const T* end;
  T copy[kSpan] = {};

  const T* row(int64_t c) {
    const T* at = first + c * pitch;
    if (width % kStep == 0 || end - at >= whole_steps(width)) return at;
    __builtin_memcpy(copy, at, size_t(width) * sizeof(T));
    return copy;
  }
};
// Calls make(buffer), which writes a row up to a multiple of kStep elements. Only the first `width` are stored to `to`.
template <class T, class Make>
inline __attribute__((always_inline)) void write_row(T* to, int64_t width, bool non_temporal, Make make) {
  if (width % kStep == 0 && !non_temporal) return make(to);
  alignas(64) T results[kSpan];
  make(results);
  copy_span(results, to, width, non_temporal);
}

// Computes softmax or log-softmax of the columns of a strip. The rows of y are `pitch` elements apart. For softmax,
// `scratch` holds the exponentials of the strip.
template <class T>
void forward_strip(Strip<T>& x, T* y, int64_t pitch, int64_t cols, bool log, Accumulator<T> scale, bool non_temporal,
                   Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  const int64_t n = whole_steps(x.width);
  Columns<A> largest, sum;
  for (A& v : largest.at) v = -INFINITY;
  auto larger = [scale](A so_far, A x, A) __attribute__((always_inline)) {
    // If a column has a NaN, the maximum may miss it, but the sum is NaN.
    return so_far > x * scale ? so_far : x * scale;
  };
  for (int64_t c = 0; c < cols; ++c) fold(largest.at, x.row(c), x.row(c), n, larger);
  sum_rows(cols, n, sum, [&](int64_t c, A* plain) {
    Columns<A> unused;
    A* e = log ? unused.at : scratch + c * n;
    add_exponentials(x.row(c), scale, largest.at, e, plain, n);
  });
  if (log)
    for (int64_t j = 0; j < n; ++j) sum.at[j] = maths::log(sum.at[j]);
  else
    for (int64_t j = 0; j < n; ++j) sum.at[j] = A(1) / sum.at[j];
  for (int64_t c = 0; c < cols; ++c)
    write_row(y + c * pitch, x.width, non_temporal, [&](T* to) {
      if (log)
        each_column(x.row(c), x.row(c), largest.at, sum.at, to, n,
                    [scale](A x, A, A largest, A log_sum)
                        __attribute__((always_inline)) { return (x * scale - largest) - log_sum; });
      else scale_columns(scratch + c * n, sum.at, to, n);
    });
}
// The rows of dx are `pitch` elements apart.
template <class T>
void backward_strip(Strip<T>& y, Strip<T>& dy, T* dx, int64_t pitch, int64_t cols, bool log, Accumulator<T> scale,
                    bool non_temporal) {
  using A = Accumulator<T>;
  const int64_t n = whole_steps(y.width);
  Columns<A> sum;
  sum_rows(cols, n, sum, [&](int64_t c, A* plain) {
    if (log)
      fold(plain, dy.row(c), dy.row(c), n, [](A sum, A dy, A) __attribute__((always_inline)) { return sum + dy; });
    else
      fold(plain, y.row(c), dy.row(c), n, [](A sum, A y, A dy) __attribute__((always_inline)) { return sum + y * dy; });
  });
  for (int64_t c = 0; c < cols; ++c)
    write_row(dx + c * pitch, y.width, non_temporal, [&](T* to) {
      if (log)
        each_column(y.row(c), dy.row(c), sum.at, sum.at, to, n,
                    [scale](A y, A dy, A sum, A)
                        __attribute__((always_inline)) { return log_gradient(y, dy, sum) * scale; });
      else
        each_column(y.row(c), dy.row(c), sum.at, sum.at, to, n,
                    [scale](A y, A dy, A sum, A) __attribute__((always_inline)) { return y * (dy - sum) * scale; });
    });
}

// Returns where reads after a row must end. If the result overwrites the tensor, another thread may be writing there,
// and memory in gaps belongs to other tensors.
template <class T> const T* end_of(const SoftmaxTiling& tiling, const T* tensor, bool in_place) {
  return in_place || !tiling.dense ? tensor : tensor + tiling.outer * tiling.cols * tiling.inner;
}

}  // namespace
}  // namespace minidnn::MINIDNN_ISA
