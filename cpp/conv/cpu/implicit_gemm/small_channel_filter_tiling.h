// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.small_channel_filter divides its work: tiles of weights, panels of filters, slices of pixels, and the
// layout of the workspace.
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
  // Per group: number of weights of a filter, number of tiles of these weights, and number of panels of filters. A
  // panel has as many filters as a tile has columns.
  int64_t weights, tiles, panels;
  int64_t pitch;                      // floats from one row of the sums of dw to the next row
  int64_t item_tiles;                 // largest number of tiles (of weights) that a work item computes
  int64_t slice_pixels, slice_lines;  // A slice (part of dy) has slice_lines lines of slice_pixels pixels each.
  size_t x_at = 0, dy_at = 0, sums_at = 0, scratch_at = 0, scratch_bytes = 0, bytes = 0;

  SmallChannelFilterTiling(const ConvProblem&, const Device&);
};

}  // namespace cpu::conv
}  // namespace minidnn
