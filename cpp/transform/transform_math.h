// SPDX-License-Identifier: Apache-2.0
// The formulas of transform, shared by CPU and CUDA: y = alpha * x + beta * y between tensors of any strides, and casts
// between any two dtypes.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

struct TransformProblem {
  // The descriptors of x and y. Both have the same shape. If x is broadcast in a dimension, its stride in this
  // dimension is 0.
  TensorDesc x, y;
  // 1 if the transform multiplies by alpha and beta, which requires floating dtypes. 0 for a plain copy or cast between
  // any dtypes.
  int64_t scaled = 0;
  // 1 if beta is not 0, and 0 if beta is 0. If it is 0, y is not read, so a NaN in y does not affect the result.
  int64_t reads_y = 0;
  // The number of bytes to which x and y are aligned in memory: at most 16, and always 16 on a CPU.
  int64_t alignment = 16;
};

struct TransformArgs {
  const void* x = nullptr;
  void* y = nullptr;
  double alpha = 1, beta = 0;
};

namespace detail {
template <class T> struct Limits;
template <> struct Limits<int8_t> {
  static constexpr int8_t low = -128, high = 127;
};
template <> struct Limits<uint8_t> {
  static constexpr uint8_t low = 0, high = 255;
};
template <> struct Limits<int32_t> {
  static constexpr int32_t low = -2147483647 - 1, high = 2147483647;
};
template <> struct Limits<int64_t> {
  static constexpr int64_t low = -9223372036854775807 - 1, high = 9223372036854775807;
};
template <class T> constexpr bool is_real = false;
template <> constexpr bool is_real<float> = true;
template <> constexpr bool is_real<double> = true;
template <> constexpr bool is_real<float16> = true;
template <> constexpr bool is_real<bfloat16> = true;
template <class T> constexpr bool is_bool = false;
template <> constexpr bool is_bool<bool> = true;
template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

// Loads an element. A bool is loaded as a byte, and any byte except 0 means true. Libraries may store bytes other than
// 0 and 1, and it is undefined behaviour to read such a byte as a C++ bool.
template <class T> MINIDNN_HD T load(const void* from, int64_t at) {
  if constexpr (is_bool<T>) return static_cast<const uint8_t*>(from)[at] != 0;
  else return static_cast<const T*>(from)[at];
}
}  // namespace detail

// Converts a number to another dtype. If the dtype does not change, every bit is kept. A conversion to a floating dtype
// rounds once, to nearest even. A conversion from a floating to an integer dtype truncates towards zero and saturates,
// and NaN becomes 0. A conversion to a narrower integer keeps the low bits. A conversion to bool is true if the number
// is not zero.
template <class To, class From> MINIDNN_HD To cast(From v) {
  using namespace detail;
  if constexpr (is_same<To, From>) return v;
  else if constexpr (is_bool<To>) return is_real<From> ? Accumulator<From>(v) != 0 : v != From(0);
  else if constexpr (is_real<To> && sizeof(To) == 2) return To(to_odd(v));
  else if constexpr (is_real<To>) return To(Accumulator<To>(v));
  else if constexpr (is_real<From>) {
    double d = double(Accumulator<From>(v));
    if (d != d) return To(0);
    if (d <= double(Limits<To>::low)) return Limits<To>::low;
    if (d >= double(Limits<To>::high)) return Limits<To>::high;
    return To(d);
  } else return To(v);
}

template <class From, class To> MINIDNN_HD void transform_element(const TransformProblem& p, const TransformArgs& a,
                                                                  int64_t x_at, int64_t y_at) {
  From x = detail::load<From>(a.x, x_at);
  To& y = static_cast<To*>(a.y)[y_at];
  if constexpr (detail::is_real<From> && detail::is_real<To>) {
    if (p.scaled) {
      using Acc = Accumulator<To>;
      Acc v = Acc(a.alpha) * Acc(x);
      if (p.reads_y) v += Acc(a.beta) * Acc(y);
      y = To(v);
      return;
    }
  }
  y = cast<To>(x);
}

// Returns the number of bytes of the widest word that a copy may use: the largest power of two, up to 16, that divides
// `bytes`. `bytes` is a size, an address, or the bitwise or of several of these.
MINIDNN_HD int64_t word_bytes_of(int64_t bytes) { return (bytes | 16) & -(bytes | 16); }

}  // namespace minidnn
