// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels in wgmma_halo.cu and wgmma_halo_filter.cu; wgmma_halo.cpp computes them. This header
// does not use std.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

// the number of channels of a pixel in a tile: 16 bits each, 128 bytes in shared memory
constexpr int kHaloChannels = 64;
constexpr int kHaloSlots =
    16;  // the largest number of slots of a ring in shared memory; a slot is a buffer for pixels of a row

// The lines of all images. A line is 64 or 128 neighbouring positions of an image row. A segment is a column of
// lines: it has one line of each row of the image, at the same position in the row. Lines are numbered from top to
// bottom in a segment, then in the next segment, then in the next image. A block computes consecutive lines.
struct HaloLines {
  int32_t count = 0;  // the number of lines (64 or 128 positions of a row) in all images
  // per_image: the number of lines of a segment, which is the height of an image. segments: the number of segments of
  // an image; a segment is 64 or 128 columns wide.
  FastDivmod per_image, segments;
  // The row and the column of the input element that the first element of the window (for dx, of the reversed window)
  // reads for the first position of an image.
  int32_t first_line = 0, first_column = 0;
  // Neighbouring elements of the window read inputs that are line_step rows and column_step columns apart (the
  // dilation).
  int32_t line_step = 1, column_step = 1;
};

// The parameters of the kernel conv_wgmma_halo. It computes y, or it computes dx from dy and the reversed window. A
// block computes 64 filters of y, or 64 channels of dx. For dx, the fields named x describe dy.
struct WgmmaHaloParams {
  // The dimensions of x are (channel, column, row, image, 1). The dimensions of w are (channel, column, row, filter,
  // 1).
  TensorMap x, w;
  HaloLines lines;
  int32_t window_lines = 0, window_columns = 0, backwards = 0;
  // The ring of slots (buffers for pixels of one row of x) in shared memory: its number of slots, the bytes that a slot
  // contains, and the distance of neighbouring slots in bytes.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  // `rows`: the number of filters of y, or of channels of dx. `positions`: the number of positions in a row of y or dx.
  int32_t rows = 0, positions = 0;
  struct Strides {
    // The strides of y or c, in elements. `line` is the stride from one image row to the next, and `row` the stride
    // from one filter to the next.
    int64_t image = 0, line = 0, column = 0, row = 0;
  } y, c;
  int64_t bias_stride = 0;
};

// The parameters of the kernel conv_wgmma_halo_filter, which computes dw. A block computes a tile of dw: 64 filters, 64
// channels, up to three rows and up to three columns of the window.
struct WgmmaHaloFilterParams {
  TensorMap x, dy;  // the dimensions of both tensors are (channel, column, row, image, 1)
  HaloLines lines;
  FastDivmod channel_tiles, column_groups, line_groups;
  // lines_each: the number of rows of the window that a block computes.
  int32_t window_lines = 0, window_columns = 0, lines_each = 0;
  // The ring of slots (buffers for pixels of one row of x) in shared memory: its number of slots, the bytes that a slot
  // contains, and the distance of neighbouring slots in bytes.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  int32_t dy_slots = 0;
  int32_t filters = 0, channels = 0;
  // The number of elements of a partial sum of dw. A partial sum is stored as [filter][row][column][channel].
  int64_t partial_sum_stride = 0;
};

}  // namespace minidnn
