// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.small_channel_filter divides its work. A tile is a group of weights (rows of the micro-kernel), a panel
// a group of filters (its columns), and a slice some pixels of dy. The file also defines the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {

struct SmallChannelFilterTiling {
  ConvProblem p;
  ConvGeometry g;
  const GemmKernel<float>& kernel = gemm_kernels().f32;
  ChannelsLast x, dy;
  // Per group of the convolution: weights of a filter, tiles of weights (rows of the micro-kernel), and panels of
  // filters (columns of the micro-kernel).
  int64_t weights, tiles, panels;
  // The number of floats from one row of the sums of dw to the next row.
  int64_t pitch;
  // The largest number of tiles of weights in a work item.
  int64_t item_tiles;
  // The pixels of dy that are computed together: at most slice_lines image rows of at most slice_pixels pixels.
  int64_t slice_pixels, slice_lines;
  size_t x_at = 0, dy_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  SmallChannelFilterTiling(const ConvProblem&, const Device&);
};

}  // namespace cpu::conv
}  // namespace minidnn
