// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels in wgmma_halo.cu, filled in by wgmma_halo.cpp. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

constexpr int kHaloChannels = 64;  // 16-bit channels of a pixel in a tile: 128 bytes of shared memory
constexpr int kHaloSlots = 16;     // the most slots of a ring of lines

// The work of a block is a contiguous span of lines, each of 64 or 128 positions. Lines are counted down one column of
// an image, then down the next column.
struct HaloLines {
  int32_t count = 0;                         // lines in all
  FastDivmod per_image, segments;            // lines of an image; segments of 64 or 128 positions of a line
  int32_t first_line = 0, first_column = 0;  // input coordinates that tap 0 reads for position 0
  int32_t line_step = 1, column_step = 1;    // input step from tap to tap
};

// Parameters of conv_wgmma_halo, which computes y, or dx from dy and the reversed window. A block computes 64 filters
// (for dx: 64 channels). For dx, the fields named x describe dy.
struct WgmmaHaloParams {
  TensorMap x, w;  // (channel, column, line, image, 1); (channel, column, line, filter, 1)
  HaloLines lines;
  int32_t window_lines = 0, window_columns = 0, backwards = 0;
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;  // of x: slots; bytes of a slot; bytes between slots
  int32_t rows = 0, positions = 0;                // filters of y, and positions in a line
  struct Strides {
    int64_t image = 0, line = 0, column = 0, row = 0;  // in elements; a row is a filter
  } y, c;
  int64_t bias_stride = 0;
};

// Parameters of conv_wgmma_halo_filter, which computes dw. A block sums up a tile of 64 filters, 64 channels and up to
// three lines and columns of the window.
struct WgmmaHaloFilterParams {
  TensorMap x, dy;  // (channel, column, line, image, 1)
  HaloLines lines;
  FastDivmod channel_tiles, column_groups, line_groups;
  int32_t window_lines = 0, window_columns = 0, lines_each = 0;  // lines and columns of the window; lines of a group
  int32_t x_slots = 0, x_bytes = 0, x_pitch = 0;                 // of x: slots; bytes of a slot; bytes between slots
  int32_t dy_slots = 0;
  int32_t filters = 0, channels = 0;
  int64_t partial_sum_stride = 0;  // elements of a partial sum of dw, [filter][line][column][channel]
};

}  // namespace minidnn
