// SPDX-License-Identifier: Apache-2.0
// The struct that describes how first_layer_filter.cu divides its work among blocks of threads. It is a kernel
// parameter, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

constexpr int kFirstLayerFilters = 64;  // the number of filters that a block computes
constexpr int kFirstLayerWarps = 16;  // the largest number of warps of a block; it leaves 128 registers for each thread

// The bytes of a pixel of dy in shared memory, with padding that avoids bank conflicts.
template <class T> constexpr int kFirstLayerPitch = kFirstLayerFilters * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

// How first_layer_filter.cu divides a tile among warps. A step is the 32 / sizeof(T) pixels of a row of dy that a warp
// multiplies at a time. A warp computes dw for one row of the window, and sums over every step_splits-th step.
struct FirstLayerFilterBlock {
  // columns and steps in a row of a tile of dy, and 16-byte copies in a row of its tile of x
  FastDivmod columns, steps, copies;
  int32_t step_splits = 1, channels = 1;
  // the rows of the tile of x, and the bytes of a row in shared memory
  int32_t x_rows = 0, x_pitch = 0;
  // A buffer has a tile of dy, then a tile of x. In bytes: the offset of the tile of x, and the size of the buffer.
  int32_t x_offset = 0, buffer = 0;
};

}  // namespace minidnn
