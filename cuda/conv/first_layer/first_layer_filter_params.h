// SPDX-License-Identifier: Apache-2.0
// How first_layer_filter.cu divides its work among blocks of threads. The struct is a kernel parameter, so this header
// does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

constexpr int kFirstLayerFilters = 64;  // filters that a block computes
constexpr int kFirstLayerWarps = 16;    // the most warps of a block, so that a thread can have 128 registers

// The distance of neighbouring pixels of dy in shared memory, in bytes. It includes padding, so that what a warp reads
// at the same time is in different banks: eight rows of a matrix for ldmatrix (16-bit), or four pixels x eight filters
// (float32).
template <class T> constexpr int kFirstLayerPitch = kFirstLayerFilters * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

// A warp computes dw for one row of the window. A step is 32 / sizeof(T) neighbouring pixels of a row of dy: 32 bytes
// of each filter. step_splits warps compute the same row of the window. Of a tile, warp i of these takes
// every step_splits-th step, beginning with step i.
struct FirstLayerFilterBlock {
  // Of a tile: its columns; the steps in one of its rows; the 16-byte copies in a row of x.
  FastDivmod columns, steps, copies;
  int32_t step_splits = 1, channels = 1;
  int32_t x_rows = 0, x_pitch = 0;   // the tile of x: number of rows, distance of rows in bytes
  int32_t x_offset = 0, buffer = 0;  // in bytes: offset of x in a buffer (after dy), size of a buffer
};

}  // namespace minidnn
