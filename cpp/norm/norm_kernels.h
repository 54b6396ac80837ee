// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.norm.streamed over a part of a tensor, once per instruction set: sums, and the pass that writes.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/cpu/isa.h"

namespace minidnn {

constexpr int64_t kNormColumns = 4096;  // the most that a part has where space is 1
// A larger result is written past the caches: sooner than cpu.norm.streamed's without sums, since the caches hold what
// was summed and is read again. By measurement on 2 Zen 3 cores with 32 MB (2026-11-21).
constexpr int64_t kNormSummedBytes = 12 << 20;

// A part of x, dy and out: [rows][columns][space], space contiguous; where it is 1, the columns are. Parameters and
// sums have an entry per column.
struct NormPart {
  const void* x;
  const void* dy;  // forward: the residual
  void* out;
  int64_t rows, columns, space;
  struct Steps {
    int64_t row, column;
  } x_step, dy_step, out_step;  // in elements
};

// What norm_element() is given, by column.
struct NormLines {
  const float *mean, *factor, *offset, *slope;
};

struct NormKernels {
  struct Typed {
    // [3][columns]: the mean in two numbers, to be added in float64, and sum((x - mean)^2)
    void (*moments)(const NormPart&, float* results);
    // [2][columns]: sum(dy) and sum(dy (x - mean[c]))
    void (*gradients)(const NormPart&, const float* mean, float* results);
    // Past the caches if `stream`: then out is not x. Forward by [adds a residual][relu].
    void (*forward[2][2])(const NormPart&, const NormLines&, bool stream);
    void (*backward)(const NormPart&, const NormLines&, bool stream);
    // out = dy slope[c] + (x - mean[c]) factor[c] + offset[c]
    void (*blend)(const NormPart&, const NormLines&, bool stream);
    // out = dy, by [relu] only where y > 0, which is in x's place. Of the lines only the mean need be there.
    void (*gate[2])(const NormPart&, const NormLines&, bool stream);
  } f32, bf16, f16;
  // Joins a column's moments, `step` apart, of n members to those of a channel that `joined` members have given.
  void (*join_moments)(int64_t channels, const float* results, int64_t columns, int64_t step, double n, double joined,
                       double* mean, double* squares);
  void (*join_gradients)(int64_t channels, const float* results, int64_t columns, int64_t step, double* dy,
                         double* product);
  // inv_std[c] = 1 / sqrt(var[c] + eps)
  void (*inverse_std)(int64_t n, const float* var, float eps, float* inv_std);
};

MINIDNN_PER_ISA(NormKernels, norm_kernels)

}  // namespace minidnn
