// SPDX-License-Identifier: Apache-2.0
// The loops of cpu.batch_norm.vectorized and cpu.layer_norm.strided_axis over a block of a tensor, compiled once per
// instruction set: the sums over the block, and the pass that writes the result.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

constexpr int64_t kNormColumns = 4096;  // the largest number of columns of a block whose `space` is 1
// A larger result is written with non-temporal stores. The threshold is lower than that of cpu.batch_norm.vectorized
// without sums, because here caches hold inputs that were summed and are read again. Measured on 2 Zen 3 cores with 32
// MB of cache (2026-11-21).
constexpr int64_t kNormSummedBytes = 12 << 20;

// A block of x, dy and out: [rows][columns][space]. Elements of `space` are contiguous; if `space` is 1, the columns
// are contiguous. Parameters and sums have one entry per column.
struct NormBlock {
  const void* x;
  const void* dy;  // forward: the residual
  void* out;
  int64_t rows, columns, space;
  struct Steps {
    int64_t row, column;
  } x_step, dy_step, out_step;  // elements
};

// The coefficients of norm_element(), one per column.
struct NormLines {
  const float *mean, *factor, *offset, *slope;
};

struct ChannelNormKernels {
  struct Typed {
    // results [3][columns]: the mean as two numbers, whose sum in float64 is the mean, and sum((x - mean)^2).
    void (*moments)(const NormBlock&, float* results);
    // results [2][columns]: sum(dy) and sum(dy (x - mean[c])).
    void (*gradients)(const NormBlock&, const float* mean, float* results);
    // `non_temporal`: stores bypass the caches; then out must not be x. Forward is indexed by [adds a residual][relu].
    void (*forward[2][2])(const NormBlock&, const NormLines&, bool non_temporal);
    void (*backward)(const NormBlock&, const NormLines&, bool non_temporal);
    // out = dy slope[c] + (x - mean[c]) factor[c] + offset[c]
    void (*blend)(const NormBlock&, const NormLines&, bool non_temporal);
    // out = dy; gate[1] (relu) writes zero where y <= 0. The caller passes y as x, and of NormLines only the mean.
    void (*gate[2])(const NormBlock&, const NormLines&, bool non_temporal);
  } f32, bf16, f16;
  // Joins the moments of a column, which cover n members, to those of its channel, which cover `joined` members. The
  // results of adjacent channels are `step` columns apart.
  void (*join_moments)(int64_t channels, const float* results, int64_t columns, int64_t step, double n, double joined,
                       double* mean, double* squares);
  void (*join_gradients)(int64_t channels, const float* results, int64_t columns, int64_t step, double* dy,
                         double* product);
  // inv_std[c] = 1 / sqrt(var[c] + eps)
  void (*inverse_std)(int64_t n, const float* var, float eps, float* inv_std);
};

MINIDNN_PER_ISA(ChannelNormKernels, channel_norm_kernels)

}  // namespace minidnn
