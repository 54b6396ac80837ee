// SPDX-License-Identifier: Apache-2.0
// How image_filter.cu cuts its work into blocks of threads. Std-free: a kernel parameter.
#pragma once
#include "cuda/conv/stencil.h"

namespace minidnn {

constexpr int kFiltersOfImage = 64;  // of a block
constexpr int kWarpsOfImage = 16;    // of a block at most, of 128 registers a thread

// Bytes from pixel to pixel of dy in shared memory: eight rows of a matrix, or four pixels by eight filters, in different banks.
template <class T> constexpr int kImagePitch = kFiltersOfImage * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

// A warp has a row of the window, `walkers` of them share the steps of a tile: 32 bytes of neighbouring dy of one filter.
struct ImageBlock {
  FastDivmod columns, steps, copies;  // of a tile: its columns, steps along a row, copies of 16 bytes along a row of x
  int32_t walkers = 1, channels = 1;
  int32_t x_rows = 0, x_pitch = 0;   // bytes
  int32_t x_offset = 0, buffer = 0;  // bytes: of x in a buffer, behind dy; of one of two buffers
};

}  // namespace minidnn
