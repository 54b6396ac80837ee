// SPDX-License-Identifier: Apache-2.0
// The innermost loop of a matrix product on the CPU, compiled once per instruction set: gemm_kernel_<isa>.cpp, with the
// loop itself in gemm_kernel_loop.h. Callers pack their operands for the kernel they got.
#pragma once
#include <cstdint>

namespace minidnn::cpu {

template <class T>
struct GemmKernel {
  int64_t rows, columns;  // of the tile that a call computes
  // sums[i * pitch + j] += sum over k of a[k * rows + i] * b[k * columns + j]; k is summed in order.
  void (*multiply)(int64_t k, const T* a, const T* b, T* sums, int64_t pitch);
};

struct GemmKernels {
  const char* isa;
  GemmKernel<float> f32;
  GemmKernel<double> f64;
};

// The kernels that this machine runs, the fastest at 0; null behind the last.
const GemmKernels* gemm_kernels(int i);

}  // namespace minidnn::cpu
