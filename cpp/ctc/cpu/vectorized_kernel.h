// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.ctc.vectorized over one sequence, and those of cpu.ctc.reference over a row of float64. They are
// compiled once per instruction set (vectorized_isa.cpp).
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/ctc/ctc_math.h"

namespace minidnn {

// The memory of a thread. It begins at a multiple of 64 bytes.
struct CtcArena {
  float* numbers;
  int64_t length;  // of the arrays that have a number for each label or blank, with what surrounds them
  // What lies before the first element of these arrays, and the least that lies behind the last one.
  static constexpr int64_t kMargin = 16;
  static constexpr int64_t kArrays = 15;
  MINIDNN_HD static int64_t length_of(const CtcProblem& p) { return round_up(p.longest() + 1, kMargin) + 2 * kMargin; }
  MINIDNN_HD static int64_t row_of(const CtcProblem& p) { return round_up(p.classes(), 64); }
  // The arrays, and a row of classes.
  MINIDNN_HD static int64_t floats(const CtcProblem& p) { return kArrays * length_of(p) + row_of(p); }
};

struct CtcKernels {
  // Computes alpha, and lse of logits. Returns the probability of the labels.
  CtcNumber<float> (*forward)(const CtcProblem&, const CtcArgs&, const CtcSequence&, const CtcArena&);
  // Computes dx for the gradient g of the loss. It is 0 if g is 0.
  void (*backward)(const CtcProblem&, const CtcArgs&, const CtcSequence&, const CtcArena&, float g, bool non_temporal);
  // Rows of float64, whose states cpu.ctc.reference computes: log(sum(exp(x))), and dx = g exp(x - lse).
  double (*lse)(const double* x, int64_t n);
  void (*softmax)(const double* x, int64_t n, double lse, double g, double* dx);
};

MINIDNN_PER_ISA(CtcKernels, ctc_kernels)

}  // namespace minidnn
