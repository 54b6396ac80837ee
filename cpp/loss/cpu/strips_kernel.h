// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.loss.strips, compiled once per instruction set (strips_isa.cpp). Rows of classes are numbered in
// row-major order of the targets. A run is a number of consecutive rows that have a constant step in memory.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/loss/loss_math.h"

namespace minidnn {

// The most rows of a strip. If the classes of a strip must be gathered, at most this number is gathered at a time.
constexpr int64_t kWidestLossStrip = 256, kGatheredClasses = 32, kGatheredRows = 128;

// How a call is divided into strips, which are groups of at most `width` rows of a run.
struct LossTiling {
  int64_t run;                 // the number of rows of a run
  int64_t width;               // the most rows of a strip
  int64_t strips;              // the number of strips per run
  int64_t items;               // the number of strips of all runs
  int64_t x_step, dx_step;     // the elements from one row of a run to the next in x and dx
  TensorDesc x_rows, dx_rows;  // x and dx without the axis of classes
  int64_t row_major_target;    // 1 if the targets are contiguous, else 0
  int64_t non_temporal;        // 1 if dx is written with non-temporal stores, else 0
};

// Computes the strips [begin, end). `sums` is null, or gets the sum of the losses of each strip.
using LossForwardStrips = void (*)(const LossProblem&, const LossArgs&, const LossTiling&, void* sums, int64_t begin,
                                   int64_t end);
// `gradient` points to one number per row, or to one in all if losses are reduced.
using LossBackwardStrips = void (*)(const LossProblem&, const LossArgs&, const LossTiling&, const void* gradient,
                                    int64_t begin, int64_t end);

struct LossStripKernels {
  LossForwardStrips forward[4];  // the loops, indexed by DType
  LossBackwardStrips backward[4];
};

MINIDNN_PER_ISA(LossStripKernels, loss_strip_kernels)

}  // namespace minidnn
