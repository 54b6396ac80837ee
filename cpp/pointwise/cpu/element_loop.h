// SPDX-License-Identifier: Apache-2.0
// Functions that the CPU engines of pointwise share: reading one element, writing one element, and applying a function
// to contiguous elements.
#pragma once
#include "cpp/pointwise/pointwise_math.h"

namespace minidnn {

template <class T> MINIDNN_HD PointwiseType<T> read_element(const void* from, int64_t at) {
  return PointwiseType<T>(static_cast<const T*>(from)[at]);
}
// Any byte other than zero is true. The byte is read as uint8_t, because reading a byte other than 0 and 1 as bool is
// undefined behaviour.
template <> MINIDNN_HD int32_t read_element<bool>(const void* from, int64_t at) {
  return static_cast<const uint8_t*>(from)[at] != 0;
}
template <class T> MINIDNN_HD void write_element(void* to, int64_t at, PointwiseType<T> v) {
  static_cast<T*>(to)[at] = T(v);
}

// The result of a formula as a number. GCC vectorises a selection, but no conversion of bool to float.
template <class A> MINIDNN_HD A number_of(A result) { return result; }
template <class A> MINIDNN_HD A number_of(bool result) { return result ? A(1) : A(0); }

// Computes out[i] = op(a[i], b[i], c[i]) for n elements. For functions with a bool result, such as isnan, out[i] is 0
// or 1. `out` may be the same memory as an operand.
template <class T> struct PointwiseLoop {
  using A = PointwiseType<T>;
  const A *a, *b, *c;
  A* out;
  int64_t n;
  template <class Name> MINIDNN_HD void operator()(Name) const {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = number_of<A>(PointwiseOp<Name::op>::of(a[i], b[i], c[i]));
  }
};

}  // namespace minidnn
