// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.lines, compiled once per instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn {

// n windows of equal shape, or one window for n channels. Element t of window i is x[taps[t] + i * step]. There is at
// least one element.
struct PoolingRun {
  const double* x;
  int64_t step, n;
  const int64_t* taps;
  int64_t count;
};

struct PoolingLinesKernels {
  // Write n contiguous results: the maxima, or the sums divided by `divide_by`.
  void (*max)(const PoolingRun&, double divide_by, double* out);
  void (*average)(const PoolingRun&, double divide_by, double* out);
  // Writes the number of the first maximum of each window.
  void (*argmax)(const PoolingRun&, int64_t* numbers);
  // Adds n contiguous numbers to sums that are `step` apart.
  void (*add_to)(const double* values, int64_t n, double* sums, int64_t step);
};

MINIDNN_PER_ISA(PoolingLinesKernels, pooling_lines_kernels)

}  // namespace minidnn
