// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.lines, compiled once per instruction set. They combine n elements of x, `step` apart, with n
// contiguous numbers.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

constexpr int64_t kNoMaximum = -0x7fffffffffffffff - 1;

struct PoolingLinesKernels {
  void (*max)(double* values, int64_t n, const double* x, int64_t step);
  void (*add)(double* values, int64_t n, const double* x, int64_t step);
  // Running maxima and where they are: the i-th element of x is at `at` + i * `at_step`. where[i] is kNoMaximum if there
  // is no maximum yet.
  void (*maxima)(double* values, int64_t* where, int64_t n, const double* x, int64_t step, int64_t at, int64_t at_step);
  // Adds n contiguous numbers to sums that are `step` apart.
  void (*add_to)(const double* values, int64_t n, double* sums, int64_t step);
};

MINIDNN_PER_ISA(PoolingLinesKernels, pooling_lines_kernels)

}  // namespace minidnn
