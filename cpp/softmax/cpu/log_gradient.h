// SPDX-License-Identifier: Apache-2.0
// The gradient of log-softmax. This header is only for the X_isa.cpp files of its folder, which are compiled once per
// instruction set.
#pragma once
#include "cpp/core/host_device/elementary_double.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Vector<float>;

// Returns the gradient of one element: dy - exp(y) * sum, or 0 where y is -inf. `sum` is the sum of dy over the row.
template <class A> inline __attribute__((always_inline)) A log_gradient(A y, A dy, A sum) {
  const A gradient = dy - elementary::exp(y) * sum;
  return y == -INFINITY ? 0 : gradient;
}
inline __attribute__((always_inline)) V log_gradient(V y, V dy, float sum) {
  const V gradient = dy - elementary::exp(y) * sum;
  return y == -INFINITY ? V{} : gradient;
}
}  // namespace
}  // namespace minidnn::MINIDNN_ISA
