// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// Reduces n elements for each of `outputs` outputs (elements of the result). For along_output, the elements of one
// output are contiguous, and `step` is the stride of outputs. For across_outputs, the outputs are contiguous, and
// `step` is the stride of the elements of one output.
struct ReduceChunk {
  const void* x;
  int64_t step, outputs, n;
  double* values;    // one partial result per output, read and written
  int64_t begin;     // for argmax and argmin: the index of the first element
  int64_t* indices;  // for argmax and argmin: the index of the element in `values`, per output
};
using ReduceLoop = void (*)(const ReduceChunk&);
constexpr int64_t kReduceOutputs = 1024;  // the largest number of outputs of a ReduceChunk

struct ReduceKernels {
  ReduceLoop along_output[4][13];  // the loops, indexed by DType and ReduceMode; null for float64
  ReduceLoop across_outputs[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
