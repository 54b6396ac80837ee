// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.batch_norm.vectorized and cpu.layer_norm.strided_axis, compiled once per instruction set.
#pragma once
#include "cpp/core/cpu/isa.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

// The largest number of contiguous columns in a block. Columns are contiguous if NormBlock::space is 1.
constexpr int64_t kNormColumns = 4096;
// A call that computes sums writes a larger result with non-temporal stores. It reads its inputs twice, the second time
// from the caches. Measured on 2 Zen 3 cores with 32 MB of cache (2026-11-21).
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

// The coefficients of the normalisation, as norm_element() uses them. Each array has one value per column. A is the type
// of sums and parameters: double for float64, else float.
template <class A> struct NormLines {
  const A *mean, *factor, *offset, *slope;
};

template <class A> struct ChannelNormLoops {
  // Computes results[3][columns]. The mean of a column is the float64 sum of the first two, and the third is sum((x -
  // mean)^2).
  void (*moments)(const NormBlock&, A* results);
  // Computes results[2][columns]: sum(dy), and sum(dy (x - mean[c])).
  void (*gradients)(const NormBlock&, const A* mean, A* results);
  // The loops of the forward pass, indexed by [adds a residual][applies relu]. If `non_temporal` is true, stores
  // bypass the caches, and out must not be x.
  void (*forward[2][2])(const NormBlock&, const NormLines<A>&, bool non_temporal);
  void (*backward)(const NormBlock&, const NormLines<A>&, bool non_temporal);
  // computes out = dy slope[c] + (x - mean[c]) factor[c] + offset[c], where c is the column
  void (*blend)(const NormBlock&, const NormLines<A>&, bool non_temporal);
  // gate[0] copies dy to out. gate[1] computes the gradient of relu: dy, or 0 where y <= 0. y is passed as
  // NormBlock::x.
  void (*gate[2])(const NormBlock&, const NormLines<A>&, bool non_temporal);
  // Merges the moments of one column into those of each channel. A column has n elements, and a channel `joined` so
  // far. `results` points to the first channel's column. Columns of consecutive channels are `step` columns apart.
  void (*join_moments)(int64_t channels, const A* results, int64_t columns, int64_t step, double n, double joined,
                       double* mean, double* squares);
  void (*join_gradients)(int64_t channels, const A* results, int64_t columns, int64_t step, double* dy,
                         double* product);
  // computes inv_std[c] = 1 / sqrt(var[c] + eps)
  void (*inverse_std)(int64_t n, const A* var, A eps, A* inv_std);
};

struct ChannelNormKernels {
  ChannelNormLoops<float> f32, bf16, f16;
  ChannelNormLoops<double> f64;
};

MINIDNN_PER_ISA(ChannelNormKernels, channel_norm_kernels)

// Returns the loops for elements of type T.
template <class T> const ChannelNormLoops<Accumulator<T>>& channel_norm_loops();
template <> inline const ChannelNormLoops<float>& channel_norm_loops<float>() { return channel_norm_kernels().f32; }
template <> inline const ChannelNormLoops<float>& channel_norm_loops<bfloat16>() { return channel_norm_kernels().bf16; }
template <> inline const ChannelNormLoops<float>& channel_norm_loops<float16>() { return channel_norm_kernels().f16; }
template <> inline const ChannelNormLoops<double>& channel_norm_loops<double>() { return channel_norm_kernels().f64; }

}  // namespace minidnn
