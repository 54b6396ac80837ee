// SPDX-License-Identifier: Apache-2.0
// The innermost loop of a matrix product on the CPU. Callers pack their operands for the kernel they got.
#pragma once
#include <cstdint>

#include "cpp/cpu/isa.h"

namespace minidnn {

template <class T> struct GemmKernel {
  int64_t rows, columns;  // of the tile that a call computes
  // sums[i * pitch + j] += sum over k of a[k * rows + i] * b[k * columns + j]; k is summed in order.
  void (*multiply)(int64_t k, const T* a, const T* b, T* sums, int64_t pitch);
};

struct GemmKernels {
  GemmKernel<float> f32;
  GemmKernel<double> f64;
};

MINIDNN_PER_ISA(GemmKernels, gemm_kernels)

}  // namespace minidnn
