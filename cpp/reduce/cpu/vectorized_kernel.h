// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// Combines n elements each of some outputs. along_output: the elements of one output are contiguous, and `step` is the
// stride of outputs. across_outputs: outputs are contiguous, and `step` is the stride of the elements of one output.
struct ReduceChunk {
  const void* x;
  int64_t step, outputs, n;
  double* values;    // the partial results of the outputs, with which the elements are combined
  int64_t begin;     // argmax and argmin: the index of the first element
  int64_t* indices;  // argmax and argmin: the indices that belong to `values`
};
using ReduceLoop = void (*)(const ReduceChunk&);
constexpr int64_t kReduceOutputs = 1024;  // in one ReduceChunk, at most

struct ReduceKernels {
  ReduceLoop along_output[4][13];  // by dtype and mode; null for float64
  ReduceLoop across_outputs[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
