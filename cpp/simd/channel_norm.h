// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.batch_norm.vectorized and cpu.layer_norm.strided_axis, compiled once per instruction set. They
// process one block of a tensor. Some loops compute sums over the block, the others write the result.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// The largest number of contiguous columns in a block. Columns are contiguous if NormBlock::space is 1.
constexpr int64_t kNormColumns = 4096;
// If a call computes sums, a result of more than kNormSummedBytes is written with non-temporal stores. Such a call
// reads its inputs twice, and finds them in the caches the second time. cpu.batch_norm.vectorized has a higher limit
// for inference, which computes no sums. The limit was measured on 2 Zen 3 cores with 32 MB of cache (2026-11-21).
constexpr int64_t kNormSummedBytes = 12 << 20;

// A block of x, dy and out has the shape [rows][columns][space]. Elements along `space` are contiguous. If `space` is
// 1, the columns are contiguous. Parameters and sums have one value per column.
struct NormBlock {
  const void* x;
  const void* dy;  // dy in the backward pass; the residual in the forward pass
  void* out;
  int64_t rows, columns, space;
  struct Steps {
    int64_t row, column;
  } x_step, dy_step, out_step;  // distances between rows and between columns, in elements
};

// The coefficients of the normalisation, as norm_element() uses them. Each array has one value per column.
struct NormLines {
  const float *mean, *factor, *offset, *slope;
};

struct ChannelNormKernels {
  struct Typed {
    // Computes the moments of each column, and writes them to the array results[3][columns]. The mean is the float64
    // sum of results[0] and results[1]. results[2] is sum((x - mean)^2).
    void (*moments)(const NormBlock&, float* results);
    // Computes two sums for the gradient of each column. It writes the array results[2][columns]: sum(dy), then sum(dy
    // (x - mean[c])).
    void (*gradients)(const NormBlock&, const float* mean, float* results);
    // The loops of the forward pass, indexed by [adds a residual][applies relu]. If `non_temporal` is true, stores
    // bypass the caches, and out must not be x.
    void (*forward[2][2])(const NormBlock&, const NormLines&, bool non_temporal);
    void (*backward)(const NormBlock&, const NormLines&, bool non_temporal);
    // computes out = dy slope[c] + (x - mean[c]) factor[c] + offset[c], where c is the column
    void (*blend)(const NormBlock&, const NormLines&, bool non_temporal);
    // gate[0] copies dy to out. gate[1] computes the gradient of relu: it writes dy, or zero where y <= 0. The caller
    // passes y as NormBlock::x. Of NormLines, the caller sets only `mean`.
    void (*gate[2])(const NormBlock&, const NormLines&, bool non_temporal);
  } f32, bf16, f16;
  // Adds the moments of one column to the moments of each of some channels. A column has n elements, and a channel has
  // `joined` elements so far. `results` points to the first channel's column in an array that moments() wrote. The
  // columns of consecutive channels are `step` columns apart.
  void (*join_moments)(int64_t channels, const float* results, int64_t columns, int64_t step, double n, double joined,
                       double* mean, double* squares);
  void (*join_gradients)(int64_t channels, const float* results, int64_t columns, int64_t step, double* dy,
                         double* product);
  // computes inv_std[c] = 1 / sqrt(var[c] + eps)
  void (*inverse_std)(int64_t n, const float* var, float eps, float* inv_std);
};

MINIDNN_PER_ISA(ChannelNormKernels, channel_norm_kernels)

}  // namespace minidnn
