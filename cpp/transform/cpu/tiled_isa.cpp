// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.transform.tiled, compiled once per instruction set: copies, casts, scaling and transposition of
// tiles.
#include <type_traits>

#include "cpp/pointwise/pointwise_math.h"
#include "cpp/simd/convert.h"
#include "cpp/simd/transpose.h"
#include "cpp/transform/cpu/tiled_kernel.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T> void copy(const TransformSpans& r, const TransformScale&) {
  auto from = static_cast<const char*>(r.x);
  auto to = static_cast<char*>(r.y);
  constexpr int64_t kBytes = sizeof(T), kShort = 256;
  const int64_t bytes = r.n * kBytes;
  // Short rows are copied in steps of 16 bytes, because a call of memcpy takes longer than the copy.
  if (bytes % 16 == 0 && bytes <= kShort && !r.non_temporal) {
    for (int64_t i = 0; i < r.rows; ++i, from += r.x_pitch * kBytes, to += r.y_pitch * kBytes)
      for (int64_t at = 0; at < bytes; at += 16) __builtin_memcpy(to + at, from + at, 16);
    return;
  }
  for (int64_t i = 0; i < r.rows; ++i)
    copy_span(from + i * r.x_pitch * kBytes, to + i * r.y_pitch * kBytes, bytes, r.non_temporal);
}

// Converts n elements to another dtype. n is a multiple of kStep.
template <class From, class To> void convert(const From* from, To* to, int64_t n) {
  if constexpr (sizeof(To) == 4) {
    widen<Order::memory>(from, to, n);
  } else if constexpr (sizeof(From) == 4) {
    narrow<Order::memory>(from, to, n);
  } else {
    alignas(64) float floats[kSpan];
    for (int64_t i = 0; i < n; i += kSpan) {
      const int64_t count = min_of(kSpan, n - i);
      widen<Order::memory>(from + i, floats, count);
      narrow<Order::memory>(floats, to + i, count);
    }
  }
}
template <class From, class To> void cast_span(const From* from, To* to, int64_t n, bool non_temporal) {
  constexpr int64_t kStage = 1024;
  alignas(64) To stage[kStage];
  const int64_t whole = n & -kStep;
  if (non_temporal)
    for (int64_t i = 0, count; i < whole; i += count) {
      count = min_of(kStage, whole - i);
      convert(from + i, stage, count);
      copy_span(stage, to + i, count, true);
    }
  else convert(from, to, whole);
  if (whole < n) {
    From rest[kStep] = {};
    __builtin_memcpy(rest, from + whole, size_t(n - whole) * sizeof(From));
    convert(rest, stage, kStep);
    __builtin_memcpy(to + whole, stage, size_t(n - whole) * sizeof(To));
  }
}
template <class From, class To> void cast(const TransformSpans& r, const TransformScale&) {
  for (int64_t i = 0; i < r.rows; ++i)
    cast_span(static_cast<const From*>(r.x) + i * r.x_pitch, static_cast<To*>(r.y) + i * r.y_pitch, r.n,
              r.non_temporal);
}

template <class From, class To>
void scale_span(const From* from, To* to, int64_t n, const TransformScale& s, bool non_temporal) {
  alignas(64) float xs[kSpan], ys[kSpan];
  write_all<Order::memory>(to, n, non_temporal,
                           [&](int64_t i, int64_t count, float* out) __attribute__((always_inline)) {
                             const float *x = read_span<Order::memory>(from + i, xs, count),
                                         *y = s.reads_y ? read_span<Order::memory>(to + i, ys, count) : nullptr;
                             const int64_t whole = whole_steps(count);
                             if (y)
#pragma GCC ivdep  // `out` is x or y itself, or does not overlap them
                               for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * x[j] + s.beta * y[j];
                             else
#pragma GCC ivdep
                               for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * x[j];
                           });
}
template <class From, class To> void scale(const TransformSpans& r, const TransformScale& s) {
  for (int64_t i = 0; i < r.rows; ++i)
    scale_span(static_cast<const From*>(r.x) + i * r.x_pitch, static_cast<To*>(r.y) + i * r.y_pitch, r.n, s,
               r.non_temporal);
}

template <class T> void transpose(const void* x, int64_t step, void* to, int64_t across, int64_t along) {
  transpose_tile(static_cast<const T*>(x), step, static_cast<T*>(to), across, across, along);
}

// Returns to_odd(v), without branches. Differences below 2^-749 do not count, because the 16-bit result is 0.
MINIDNN_HD float odd_float(double v) {
  const float f = float(v), difference = float((v - double(f)) * 0x1p600);
  const uint32_t bits = detail::bits_of(f), away = (bits ^ detail::bits_of(difference)) >> 31;
  return difference > 0.0f || difference < 0.0f ? detail::float_of((bits - away) | 1) : f;
}
// Rounds doubles to a 16-bit type.
template <class To> void round_doubles(const double* from, float* to, int64_t n) {
  alignas(64) float floats[kSpan];
  alignas(64) To rounded[kSpan];
  for (int64_t i = 0, count; i < n; i += count) {
    count = min_of(kSpan, n - i);
    for (int64_t j = 0; j < count; ++j) floats[j] = odd_float(from[i + j]);
    for (int64_t j = count; j < whole_steps(count); ++j) floats[j] = 0;
    narrow<Order::memory>(floats, rounded, whole_steps(count));
    widen<Order::memory>(rounded, floats, whole_steps(count));
    __builtin_memcpy(to + i, floats, size_t(count) * sizeof(float));
  }
}
template <class From, class To> void cast_computed(const void* x, void* y, int64_t n) {
  const From* from = static_cast<const From*>(x);
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
    return round_doubles<To>(from, static_cast<float*>(y), n);
  PointwiseType<To>* to = static_cast<PointwiseType<To>*>(y);
#pragma GCC ivdep  // y does not overlap x, or is x itself and has elements of the same size
  for (int64_t i = 0; i < n; ++i) to[i] = PointwiseType<To>(minidnn::cast<To>(from[i]));
}
template <class T>
void scale_computed(const void* x, const void* y, void* out, int64_t n, double alpha, double beta) {
  const T *const xs = static_cast<const T*>(x), *const ys = static_cast<const T*>(y);
  T* const to = static_cast<T*>(out);
  const T a = T(alpha), b = T(beta);
  if (y)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = a * xs[i] + b * ys[i];
  else
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = a * xs[i];
}
#define MINIDNN_CASTS(From)                                                                   \
  {cast_computed<From, float>,    cast_computed<From, double>,  cast_computed<From, float16>, \
   cast_computed<From, bfloat16>, cast_computed<From, int8_t>,  cast_computed<From, uint8_t>, \
   cast_computed<From, int32_t>,  cast_computed<From, int64_t>, cast_computed<From, bool>}

}  // namespace

extern const TransformKernels transform_kernels;
const TransformKernels transform_kernels = {
    {copy<uint8_t>, copy<uint16_t>, copy<uint32_t>, copy<uint64_t>},
    {transpose<uint8_t>, transpose<uint16_t>, transpose<uint32_t>, transpose<uint64_t>},
    // Functions for casts and for scaling, indexed by the dtypes of x and y, in the order of DType.
    {{copy<float>, nullptr, cast<float, float16>, cast<float, bfloat16>},
     {},
     {cast<float16, float>, nullptr, copy<float16>, cast<float16, bfloat16>},
     {cast<bfloat16, float>, nullptr, cast<bfloat16, float16>, copy<bfloat16>},
     {cast<int8_t, float>, nullptr, cast<int8_t, float16>, cast<int8_t, bfloat16>},
     {cast<uint8_t, float>, nullptr, cast<uint8_t, float16>, cast<uint8_t, bfloat16>}},
    {{scale<float, float>, nullptr, scale<float, float16>, scale<float, bfloat16>},
     {},
     {scale<float16, float>, nullptr, scale<float16, float16>, scale<float16, bfloat16>},
     {scale<bfloat16, float>, nullptr, scale<bfloat16, float16>, scale<bfloat16, bfloat16>}},
    {MINIDNN_CASTS(float), MINIDNN_CASTS(double), {}, {}, {}, {}, MINIDNN_CASTS(int32_t), MINIDNN_CASTS(int64_t)},
    {scale_computed<float>, scale_computed<double>},
    store_fence};

}  // namespace minidnn::MINIDNN_ISA
