// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.random.vectorized for row-major tensors, compiled once per instruction set
// (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/random/random_math.h"

namespace minidnn {

// Computes the random numbers of the elements [begin, end) of a row-major result. `begin` is a multiple of 4. The
// arguments point to element `begin` of x and of the result.
using RandomLoop = void (*)(const RandomArgs&, bool non_temporal, int64_t begin, int64_t end);

struct RandomKernels {
  // The loops that fill a tensor, indexed by kind (uniform, normal, dropout) and DType.
  RandomLoop loops[3][4];
};

MINIDNN_PER_ISA(RandomKernels, random_kernels)

}  // namespace minidnn
