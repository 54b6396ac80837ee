// SPDX-License-Identifier: Apache-2.0
// The loop of gemm_kernel.h in GCC's and Clang's vector types, for the files that compile it with options of their own.
// Everything is in an unnamed namespace and nothing of std is used: a function that such a file shared with the rest of
// the library could be linked from there, and then fail on a machine without its instructions.
#pragma once
#include "cpp/cpu/gemm_kernel.h"

namespace minidnn::cpu {
namespace {

template <class Vector, class T>
inline Vector load(const T* from) {  // aligned or not
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

// kRows x kVectors sums stay in registers; each step loads kVectors vectors of b and broadcasts kRows elements of a.
template <class T, int kVectorBytes, int kRows, int kVectors>
void multiply(int64_t k, const T* a, const T* b, T* sums, int64_t pitch) {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  Vector tile[kRows][kVectors] = {};
  for (; k > 0; --k, a += kRows, b += kVectors * kLanes) {
    Vector row[kVectors];
    for (int j = 0; j < kVectors; ++j) row[j] = load<Vector>(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) tile[i][j] += a[i] * row[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      T* at = sums + i * pitch + j * kLanes;
      Vector sum = load<Vector>(at) + tile[i][j];
      __builtin_memcpy(at, &sum, sizeof sum);
    }
}

template <class T, int kVectorBytes, int kRows, int kVectors>
constexpr GemmKernel<T> kernel() {
  return {kRows, kVectors * kVectorBytes / int64_t(sizeof(T)), multiply<T, kVectorBytes, kRows, kVectors>};
}
template <int kVectorBytes, int kRows, int kVectors>
constexpr GemmKernels kernels(const char* isa) {
  return {isa, kernel<float, kVectorBytes, kRows, kVectors>(), kernel<double, kVectorBytes, kRows, kVectors>()};
}

}  // namespace
}  // namespace minidnn::cpu
