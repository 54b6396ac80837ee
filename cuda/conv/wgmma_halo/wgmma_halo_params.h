// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels in wgmma_halo.cu and wgmma_halo_filter.cu; wgmma_halo.cpp computes them. This header
// does not use std.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

// the number of channels of a pixel in a tile: 16 bits each, 128 bytes in shared memory
constexpr int kHaloChannels = 64;
constexpr int kHaloSlots = 16;  // the largest number of slots of a ring; a slot is a buffer for a row of pixels

// A line is 64 or 128 adjacent positions of a row, and a segment is the lines below each other in an image. An image of
// 200 rows x 256 columns, for example, has two segments of 200 lines of 128 positions. Lines are numbered down a
// segment, then by segment, then by image. A block computes consecutive lines.
struct HaloLines {
  int32_t count = 0;  // the number of lines in all images
  // the number of lines in a segment, and of segments in an image
  FastDivmod per_image, segments;
  // the row and the column of the input at the first tap of position 0
  int32_t first_line = 0, first_column = 0;
  // the dilation along the height and the width
  int32_t line_step = 1, column_step = 1;
};

// The parameters of conv_wgmma_halo, which computes 64 filters of y or 64 channels of dx per block. For dx, x stands
// for dy, and the window is reversed.
struct WgmmaHaloParams {
  // The dimensions of x are (channel, column, row, image, 1), those of w are (channel, column, row, filter, 1).
  TensorMap x, w;
  HaloLines lines;
  int32_t window_lines = 0, window_columns = 0, backwards = 0;
  // The ring buffer for rows of x: the number of slots, the bytes loaded into a slot, and the distance of slots in
  // bytes.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  // the number of filters of y (or channels of dx), and of positions in a row
  int32_t rows = 0, positions = 0;
  struct Strides {
    // In elements. `line` is the stride of image rows, `row` the stride of filters.
    int64_t image = 0, line = 0, column = 0, row = 0;
  } y, c;
  int64_t bias_stride = 0;
};

// The parameters of conv_wgmma_halo_filter. A block computes 64 filters x 64 channels x up to 3 x 3 taps of dw.
struct WgmmaHaloFilterParams {
  TensorMap x, dy;  // the dimensions of both tensors are (channel, column, row, image, 1)
  HaloLines lines;
  FastDivmod channel_tiles, column_groups, line_groups;
  // lines_each: the rows of the window that a block computes
  int32_t window_lines = 0, window_columns = 0, lines_each = 0;
  // The ring buffer for rows of x: the number of slots, the bytes loaded into a slot, and the distance of slots in
  // bytes.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  int32_t dy_slots = 0;
  int32_t filters = 0, channels = 0;
  // The elements of a partial sum of dw, which is stored as [filter][row][column][channel].
  int64_t partial_sum_stride = 0;
};

}  // namespace minidnn
