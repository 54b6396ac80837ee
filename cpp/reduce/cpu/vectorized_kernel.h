// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (vectorized_isa.cpp and wide_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// Reduces n elements for each of `outputs` elements of the result. `step` is the stride between outputs in along_output
// (reduced elements contiguous), and between reduced elements in across_outputs (outputs contiguous).
struct ReduceChunk {
  const void* x;
  int64_t step, outputs, n;
  double* values;    // partial results, one per element of the result. Those of integers are of type int64_t.
  int64_t begin;     // for argmax and argmin: the index of the first of the n elements
  int64_t* indices;  // for argmax and argmin: the index of each largest element so far
};
using ReduceLoop = void (*)(const ReduceChunk&);
// the largest number of elements of the result per call of a loop
constexpr int64_t kReduceOutputs = 1024;

// Prefetches `count` elements after `from` + `step`, in another page, which hardware prefetchers do not reach.
template <class T> MINIDNN_HD void prefetch_row(const T* from, int64_t step, int64_t count) {
  constexpr int64_t kLine = 64 / int64_t(sizeof(T));
  for (int64_t j = 0; j < count; j += kLine) __builtin_prefetch(from + step + j);
}

struct ReduceKernels {
  ReduceLoop along_output[4][13];  // the loops, indexed by DType and ReduceMode; the pointers for float64 are null
  ReduceLoop across_outputs[4][13];
};

// The loops for float64 and integers, and for results. `across` selects across_outputs instead of along_output.
struct ReduceWideKernels {
  using Run = void (*)(const ReduceChunk&, DType, ReduceMode, bool across);
  Run f64, i64;  // by the type in which elements are combined
  // Computes n contiguous results of type float32, float16 or bfloat16 from their combined values. `count` elements were
  // combined for each. Not for any, all, argmax and argmin.
  void (*finish)(ReduceMode, const double* values, int64_t n, int64_t count, DType, void* to);
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)
MINIDNN_PER_ISA(ReduceWideKernels, reduce_wide_kernels)

}  // namespace minidnn
