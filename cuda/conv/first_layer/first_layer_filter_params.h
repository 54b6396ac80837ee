// SPDX-License-Identifier: Apache-2.0
// How first_layer_filter.cu divides its work among blocks of threads. Std-free: a kernel parameter.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

constexpr int kFirstLayerFilters = 64;  // filters of a block
constexpr int kFirstLayerWarps = 16;    // the most warps of a block: a thread then has 128 registers

// Bytes from pixel to pixel of dy in shared memory. The padding puts what a warp reads at the same time into different
// banks: eight rows of a matrix for ldmatrix, or four pixels x eight filters of float32.
template <class T> constexpr int kFirstLayerPitch = kFirstLayerFilters * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

// A warp computes one row of the window. A step is 32 / sizeof(T) neighbouring pixels of a row of dy: 32 bytes of each
// filter. `step_splits` warps have the same row of the window; each takes every step_splits-th step of a tile.
struct FirstLayerFilterBlock {
  FastDivmod columns, steps, copies;  // of a tile: columns; steps in a row; copies of 16 bytes in a row of x
  int32_t step_splits = 1, channels = 1;
  int32_t x_rows = 0, x_pitch = 0;   // the tile of x: rows, bytes from row to row
  int32_t x_offset = 0, buffer = 0;  // bytes: offset of x in a buffer, after dy; size of a buffer
};

}  // namespace minidnn
