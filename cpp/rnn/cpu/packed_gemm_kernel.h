// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.rnn.packed_gemm over the units of one sequence at one step, compiled once per instruction set
// (packed_gemm_isa.cpp). Matrix products are those of gemm_microkernel.h. All numbers are float32. Value k of a unit (of
// a gate) is k pitches behind value 0.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/rnn/rnn_math.h"

namespace minidnn {

// The sums of a step, and where its results are.
struct RnnForwardUnits {
  int64_t units;
  const float *input, *hidden, *bias;  // W x, U h, and the biases of both
  int64_t input_pitch, hidden_pitch, bias_pitch;
  const float* next_input;  // W x of the next call, which is prefetched
  const float* h;           // before the step (GRU)
  float* c;                 // before and after the step (LSTM)
  float clip;               // NaN if c is not clipped
  float* to;                // h after the step
  float* saved;             // gates after activation, or null
  int64_t saved_pitch;
  float* cells;  // a copy of c, or null
};
// The biases of value k are b_ih + b_hh, but that of n of a GRU is b_ih. Value 3 of a GRU is b_hh of n.

struct RnnBackwardUnits {
  int64_t units;
  const float *dh, *dy;  // the gradient of h by the step after, and that of y
  const float* saved;
  int64_t saved_pitch;
  const float* next_saved;    // `saved` of the next call, which is prefetched
  const float *c, *c_before;  // LSTM. c_before is null for zeros
  float clip;
  const float* h_before;  // GRU; null for zeros
  float* state;           // RnnLayer::state, before and after
  float* dgates;
  int64_t dgates_pitch;
};

struct RnnKernels {
  void (*forward[4])(const RnnForwardUnits&);  // indexed by RnnMode
  void (*backward[4])(const RnnBackwardUnits&);
  void (*add)(const float* from, float* to, int64_t n);  // to += from
};

MINIDNN_PER_ISA(RnnKernels, rnn_kernels)

}  // namespace minidnn
