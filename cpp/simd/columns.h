// SPDX-License-Identifier: Apache-2.0
// Sums, maxima and other results of each of n <= kSpan adjacent columns. Each lane of a vector computes one column. n is
// a multiple of kStep. Only files X_isa.cpp, which are compiled once per instruction set, include this header.
#pragma once
#include "cpp/core/host_device/elementary_double.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// The number of rows that are added directly before their sum is added to the compensated sums.
constexpr int kPlainRows = 8;

// One number per column.
template <class A> struct Columns {
  alignas(64) A at[kSpan];
};

// Computes values[j] = f(values[j], a[j], b[j]) for n columns.
template <class A, class F>
inline __attribute__((always_inline)) void fold(A* values, const A* a, const A* b, int64_t n, F f) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) values[j] = f(values[j], a[j], b[j]);
}
template <class A> void add_compensated(A* plain, A* sum, A* compensation, int64_t n) {
  n &= -kStep;
  for (int64_t j = 0; j < n; ++j) {
    CompensatedSum<A> s{sum[j], compensation[j]};
    s.add(plain[j]);
    sum[j] = s.sum;
    compensation[j] = s.compensation;
    plain[j] = 0;
  }
}
// Computes one compensated sum per column over all rows. add(c, plain) must add row c to the array `plain`.
template <class A, class Add>
inline __attribute__((always_inline)) void sum_rows(int64_t rows, int64_t n, Columns<A>& sum, Add add) {
  Columns<A> plain, compensation;
  __builtin_memset(&plain, 0, sizeof plain);
  __builtin_memset(&compensation, 0, sizeof compensation);
  __builtin_memset(&sum, 0, sizeof sum);
  for (int64_t c = 0; c < rows; ++c) {
    add(c, plain.at);
    if (c % kPlainRows == kPlainRows - 1 || c == rows - 1) add_compensated(plain.at, sum.at, compensation.at, n);
  }
  for (int64_t j = 0; j < n; ++j) sum.at[j] += compensation.at[j];
}
// Computes e[j] = exp(x[j] * scale - largest[j]) and adds it to sum[j].
template <class A>
void add_exponentials(const A* x, A scale, const A* largest, A* e, A* sum, int64_t n) {
  n &= -kStep;
#pragma GCC ivdep  // e is x itself or does not overlap x
  for (int64_t j = 0; j < n; ++j) sum[j] += e[j] = elementary::exp_of_negative(x[j] * scale - largest[j]);
}

}  // namespace
}  // namespace minidnn::MINIDNN_ISA
