// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.loss.vectorized, compiled once per instruction set (vectorized_isa.cpp), for contiguous rows of
// classes.
#pragma once
#include "cpp/core/isa.h"
#include "cpp/loss/loss_math.h"

namespace minidnn {

// Rows [begin, end) in row-major order of the targets. `gradient`: one number per row's loss, or one for all rows.
using LossForwardLoop = void (*)(const LossProblem&, const LossArgs&, float* losses, int64_t begin, int64_t end);
using LossBackwardLoop = void (*)(const LossProblem&, const LossArgs&, const float* gradient, bool non_temporal,
                                  int64_t begin, int64_t end);

struct LossKernels {
  LossForwardLoop forward[4];  // by dtype; null for float64
  LossBackwardLoop backward[4];
};

MINIDNN_PER_ISA(LossKernels, loss_kernels)

}  // namespace minidnn
