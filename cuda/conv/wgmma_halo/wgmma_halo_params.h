// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels in wgmma_halo.cu and wgmma_halo_filter.cu; wgmma_halo.cpp computes them. This header
// does not use std.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

constexpr int kHaloChannels = 64;  // channels of a pixel in a tile: 16 bits each, 128 bytes in shared memory
constexpr int kHaloSlots = 16;     // the most slots of a ring of lines

// A line is 64 or 128 positions of an image row. A segment is the lines of an image that are one below the other. Lines
// are counted down one segment, then down the next segment, then in the next image. A block computes consecutive lines.
struct HaloLines {
  int32_t count = 0;                         // lines in all images
  FastDivmod per_image, segments;            // lines of a segment (rows of an image), segments of an image
  int32_t first_line = 0, first_column = 0;  // line and column of the input that tap 0 reads for position 0
  int32_t line_step = 1, column_step = 1;    // lines and columns of the input between neighbouring taps (the dilation)
};

// Parameters of conv_wgmma_halo. The kernel computes y, or dx from dy and the reversed window. A block computes 64
// filters of y, or 64 channels of dx. For dx, the fields named x describe dy.
struct WgmmaHaloParams {
  TensorMap x, w;  // dimensions of x: (channel, column, line, image, 1); of w: (channel, column, line, filter, 1)
  HaloLines lines;
  int32_t window_lines = 0, window_columns = 0, backwards = 0;
  // The ring of lines of x: number of slots, bytes that a slot contains, bytes between slots.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  int32_t rows = 0, positions = 0;  // filters of y, positions in a row of y
  struct Strides {
    int64_t image = 0, line = 0, column = 0, row = 0;  // in elements; `row` is the stride from filter to filter
  } y, c;
  int64_t bias_stride = 0;
};

// Parameters of conv_wgmma_halo_filter, which computes dw. A block computes a tile of dw: 64 filters, 64 channels, up
// to three lines and up to three columns of the window.
struct WgmmaHaloFilterParams {
  TensorMap x, dy;  // dimensions: (channel, column, line, image, 1)
  HaloLines lines;
  FastDivmod channel_tiles, column_groups, line_groups;
  // lines_each: lines of the window that a block computes.
  int32_t window_lines = 0, window_columns = 0, lines_each = 0;
  // The ring of lines of x: number of slots, bytes that a slot contains, bytes between slots.
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;
  int32_t dy_slots = 0;
  int32_t filters = 0, channels = 0;
  // The elements of a partial sum of dw, which is stored as [filter][line][column][channel].
  int64_t partial_sum_stride = 0;
};

}  // namespace minidnn
