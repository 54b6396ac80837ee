// SPDX-License-Identifier: Apache-2.0
// The struct that describes how first_layer_filter.cu divides its work among blocks of threads. It is a kernel
// parameter, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

constexpr int kFirstLayerFilters = 64;  // the number of filters that a block computes
constexpr int kFirstLayerWarps = 16;  // the largest number of warps of a block; it leaves 128 registers for each thread

// The distance of neighbouring pixels of dy in shared memory, in bytes. It includes padding, which avoids bank
// conflicts when a warp reads several pixels at the same time.
template <class T> constexpr int kFirstLayerPitch = kFirstLayerFilters * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

// How first_layer_filter.cu divides a tile among warps. A warp computes dw for one row of the window. A step is 32 /
// sizeof(T) neighbouring pixels of a row of dy. step_splits warps compute the same row of the window: the i-th of them
// sums over the steps i, i + step_splits, i + 2 step_splits ...
struct FirstLayerFilterBlock {
  // For each tile of dy: its number of columns, the number of steps (of 32 / sizeof(T) pixels) in one of its rows, and
  // the number of 16-byte copies in a row of x.
  FastDivmod columns, steps, copies;
  int32_t step_splits = 1, channels = 1;
  // The tile of x in shared memory: its number of rows, and the distance of neighbouring rows in bytes.
  int32_t x_rows = 0, x_pitch = 0;
  // A buffer contains a tile of dy, then a tile of x. x_offset is the offset of x in the buffer, and `buffer` the size
  // of the buffer, both in bytes.
  int32_t x_offset = 0, buffer = 0;
};

}  // namespace minidnn
