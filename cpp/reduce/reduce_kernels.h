// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.reduce.runs, compiled once per instruction set (reduce_isa.cpp).
#pragma once
#include "cpp/cpu/isa.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

// n elements each of some outputs. Along: an output's elements lie beside each other, and outputs `step` apart. Across:
// outputs lie beside each other, and an output's elements `step` apart.
struct ReducePart {
  const void* x;
  int64_t step, outputs, n;
  double* values;   // of outputs so far, which the elements are combined with
  int64_t begin;    // argmax and argmin: the first element's place
  int64_t* places;  // and the values'
};
using ReduceLoop = void (*)(const ReducePart&);
constexpr int64_t kReduceOutputs = 1024;  // at most

struct ReduceKernels {
  ReduceLoop along[4][13];  // by dtype and mode; null for float64
  ReduceLoop across[4][13];
};

MINIDNN_PER_ISA(ReduceKernels, reduce_kernels)

}  // namespace minidnn
