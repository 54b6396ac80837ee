// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.batch_norm.vectorized and cpu.layer_norm.strided_axis, compiled once per instruction set. They
// process a block of a tensor: first the sums over the block, then the pass that writes the result.
#pragma once
#include "cpp/core/hd.h"
#include "cpp/core/isa.h"

namespace minidnn {

constexpr int64_t kNormColumns = 4096;  // largest number of columns of a block (see NormBlock) whose `space` is 1
// A result of more bytes is written with non-temporal stores. Where cpu.batch_norm.vectorized needs no sums, it uses a
// higher threshold. Here, the inputs have just been summed, are read again, and are still in the caches. Measured on 2
// Zen 3 cores with 32 MB of cache (2026-11-21).
constexpr int64_t kNormSummedBytes = 12 << 20;

// A block of x, dy and out: [rows][columns][space]. Elements along `space` are contiguous. If `space` is 1, the columns
// are contiguous. Parameters and sums have one entry per column.
struct NormBlock {
  const void* x;
  const void* dy;  // dy in the backward pass, the residual in the forward pass
  void* out;
  int64_t rows, columns, space;
  struct Steps {
    int64_t row, column;
  } x_step, dy_step, out_step;  // elements
};

// The coefficients of norm_element(). Each array has one entry per column.
struct NormLines {
  const float *mean, *factor, *offset, *slope;
};

struct ChannelNormKernels {
  struct Typed {
    // Writes results[3][columns]: the mean as two floats whose sum in float64 is the mean, then sum((x - mean)^2).
    void (*moments)(const NormBlock&, float* results);
    // Writes results[2][columns]: sum(dy), then sum(dy (x - mean[c])).
    void (*gradients)(const NormBlock&, const float* mean, float* results);
    // The forward pass, indexed by [adds a residual][applies relu]. If `non_temporal`, stores bypass the caches, and
    // out must not be x.
    void (*forward[2][2])(const NormBlock&, const NormLines&, bool non_temporal);
    void (*backward)(const NormBlock&, const NormLines&, bool non_temporal);
    // computes out = dy slope[c] + (x - mean[c]) factor[c] + offset[c]
    void (*blend)(const NormBlock&, const NormLines&, bool non_temporal);
    // gate[0] copies dy to out. gate[1] is the gradient of relu: it writes dy, or zero where y <= 0. The caller passes
    // y in place of x. It fills in only the mean of NormLines.
    void (*gate[2])(const NormBlock&, const NormLines&, bool non_temporal);
  } f32, bf16, f16;
  // Adds the moments of one column per channel to the moments of its channel. The column has n elements, and the
  // channel has `joined` elements so far. The columns of neighbouring channels are `step` apart in `results`.
  void (*join_moments)(int64_t channels, const float* results, int64_t columns, int64_t step, double n, double joined,
                       double* mean, double* squares);
  void (*join_gradients)(int64_t channels, const float* results, int64_t columns, int64_t step, double* dy,
                         double* product);
  // computes inv_std[c] = 1 / sqrt(var[c] + eps)
  void (*inverse_std)(int64_t n, const float* var, float eps, float* inv_std);
};

MINIDNN_PER_ISA(ChannelNormKernels, channel_norm_kernels)

}  // namespace minidnn
