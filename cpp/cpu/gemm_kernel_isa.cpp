// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/gemm_kernel.h"

#include "cpp/cpu/vector.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// kRows x kVectors sums stay in registers; each step loads kVectors vectors of b and broadcasts kRows elements of a.
template <class T, int kRows, int kVectors> void multiply(int64_t k, const T* a, const T* b, T* sums, int64_t pitch) {
  Vector<T> tile[kRows][kVectors] = {};
  for (; k > 0; --k, a += kRows, b += kVectors * kLanes<T>) {
    Vector<T> row[kVectors];
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + j * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) tile[i][j] += a[i] * row[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      T* at = sums + i * pitch + j * kLanes<T>;
      store(at, load(at) + tile[i][j]);
    }
}

template <class T, int kRows, int kVectors> constexpr GemmKernel<T> kernel() {
  return {kRows, kVectors * kLanes<T>, multiply<T, kRows, kVectors>};
}
// All but a few registers hold sums: a row of b takes 2, an element of a 1, or none where the instruction that uses it
// broadcasts it. Without a fused multiply-add each product needs one more.
constexpr int kRows = kVectorRegisters == 32 ? 12 : kVectorBytes == 32 ? 6 : 4;

}  // namespace

extern const GemmKernels gemm_kernels;
const GemmKernels gemm_kernels = {kernel<float, kRows, 2>(), kernel<double, kRows, 2>()};

}  // namespace minidnn::MINIDNN_ISA
