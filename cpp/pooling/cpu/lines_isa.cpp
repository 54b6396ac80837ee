// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.pooling.lines. Compilers vectorise those with a constant step.
#include "cpp/pooling/cpu/lines_kernel.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// Calls loop(step) with 1 as a constant, or with any other step.
template <class F> MINIDNN_HD void with_step(int64_t step, F loop) {
  if (step == 1) loop(1);
  else loop(step);
}

void max(double* values, int64_t n, const double* x, int64_t step) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const double v = x[i * s], most = values[i];
      values[i] = (v > most) | (v != v) ? v : most;
    }
  });
}

void add(double* values, int64_t n, const double* x, int64_t step) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) values[i] += x[i * s];
  });
}

void maxima(double* values, int64_t* where, int64_t n, const double* x, int64_t step, int64_t at, int64_t at_step) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const double v = x[i * s], most = values[i];
      const bool larger = (v > most) | ((v != v) & (most == most)) | (where[i] == kNoMaximum);
      values[i] = larger ? v : most;
      where[i] = larger ? at + i * at_step : where[i];
    }
  });
}

void add_to(const double* values, int64_t n, double* sums, int64_t step) {
  with_step(step, [=](int64_t s) __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) sums[i * s] += values[i];
  });
}

}  // namespace

extern const PoolingLinesKernels pooling_lines_kernels;
const PoolingLinesKernels pooling_lines_kernels = {max, add, maxima, add_to};

}  // namespace minidnn::MINIDNN_ISA
