// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.vectorized, compiled once per instruction set (reduce_isa.cpp).
#pragma once
#include "cpp/core/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// Combines n elements each of some outputs. Loops `along`: the elements of one output are contiguous, and the first
// elements of outputs are `step` apart. Loops `across`: outputs are contiguous, and the elements of one output are
// `step` apart.
struct ReducePart {
  const void* x;
  int64_t step, outputs, n;
  double* values;   // the partial results of the outputs, with which the elements are combined
  int64_t begin;    // argmax and argmin: the index of the first element
  int64_t* places;  // argmax and argmin: the indices that belong to `values`
};
using ReduceLoop = void (*)(const ReducePart&);
constexpr int64_t kReduceOutputs = 1024;  // in one ReducePart, at most

struct ReduceKernels {
  ReduceLoop along[4][13];  // by dtype and mode; null for float64
  ReduceLoop across[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
