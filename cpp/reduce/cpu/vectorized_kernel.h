// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// Reduces n elements for each of `outputs` elements of the result. `step` is the stride between outputs in along_output
// (reduced elements contiguous), and between reduced elements in across_outputs (outputs contiguous).
struct ReduceChunk {
  const void* x;
  int64_t step, outputs, n;
  double* values;    // partial results, one per element of the result
  int64_t begin;     // for argmax and argmin: the index of the first of the n elements
  int64_t* indices;  // for argmax and argmin: the index of each largest element so far
};
using ReduceLoop = void (*)(const ReduceChunk&);
// the largest number of elements of the result per call of a loop
constexpr int64_t kReduceOutputs = 1024;

struct ReduceKernels {
  ReduceLoop along_output[4][13];  // the loops, indexed by DType and ReduceMode; the pointers for float64 are null
  ReduceLoop across_outputs[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
