// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.loss.vectorized, compiled once per instruction set (vectorized_isa.cpp), for contiguous rows of
// classes.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/loss/loss_math.h"

namespace minidnn {

// Processes the rows [begin, end), in row-major order of the targets. `losses` gets one number per row.
// `gradient` has one number per row, or one in all if losses are reduced.
using LossForwardLoop = void (*)(const LossProblem&, const LossArgs&, void* losses, int64_t begin, int64_t end);
using LossBackwardLoop = void (*)(const LossProblem&, const LossArgs&, const void* gradient, bool non_temporal,
                                  int64_t begin, int64_t end);

struct LossKernels {
  LossForwardLoop forward[4];  // the loops, indexed by DType
  LossBackwardLoop backward[4];
};

MINIDNN_PER_ISA(LossKernels, loss_kernels)

}  // namespace minidnn
