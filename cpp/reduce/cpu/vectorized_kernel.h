// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// The arguments of a loop, which reduces n elements for each of `outputs` outputs (elements of the result).
// along_output loops are for outputs whose elements are contiguous; `step` is then the stride between outputs.
// across_outputs loops are for contiguous outputs; `step` is then the stride between the elements of one output.
struct ReduceChunk {
  const void* x;
  int64_t step, outputs, n;
  double* values;    // the partial result of each output (element of the result), which the loop reads and updates
  int64_t begin;     // for argmax and argmin: the index of the first of the n elements
  int64_t* indices;  // for argmax and argmin: the index of the largest element of each output so far
};
using ReduceLoop = void (*)(const ReduceChunk&);
// the largest number of outputs (elements of the result) that a loop processes in one call
constexpr int64_t kReduceOutputs = 1024;

struct ReduceKernels {
  ReduceLoop along_output[4][13];  // the loops, indexed by DType and ReduceMode; the pointers for float64 are null
  ReduceLoop across_outputs[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
