// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nchw.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Splits a number into indices of [planes][lines][columns]. With one plane, no division by the lines is needed.
struct Grid {
  FastDivmod by_columns, by_lines;
  Grid() = default;
  MINIDNN_HD Grid(int planes, int lines, int columns) : by_columns(columns), by_lines(planes > 1 ? lines : 1 << 30) {}
};

// Flat: with nested structs, the compiler orders the instructions of the kernels differently.
struct NchwParams {
  Windows h, w;
  int64_t planes;
  int32_t block_planes;   // per block; 1 where a plane is split
  int32_t chunks, lines;  // blocks per plane, and lines of y (forward) or dx (backward) per block
  int32_t lane_bits;      // log2 of the threads per window, where its size is unknown to the compiler
  int32_t index_bytes;    // 0: no indices
  int32_t exclude_padding;
  float mean_factor;  // each element's factor in a mean if all windows divide by the same number, else 0
  // 1: the size of the windows is unknown to the compiler, and a thread takes kDown of them below each other.
  int32_t several_windows;
  int32_t one_window;  // 1: a plane is one window, so its elements need no coordinates
  // Offsets in shared memory, after x (or dx) at 0. y is stored where dy is. keys_at: of keys, or of scaled dy.
  int32_t dy_at, keys_at;
  FastDivmod by_chunks;
  // Index grids of a block: its windows, the windows that a thread searches at a time, and the units of y or dx that it
  // computes.
  Grid windows, searches, results;
  FastDivmod by_x_columns;
  // For the kernel in which windows add to dx: lanes of a warp have neighbouring strips of windows.
  int32_t strip_lines;   // lines of windows per strip
  int32_t strip_rounds;  // iterations of a block's warps
  int32_t sums_at;       // offset in shared memory, after dy
  FastDivmod by_lanes;   // strips side by side in a warp

  MINIDNN_HD int lanes() const { return 1 << lane_bits; }
  MINIDNN_HD int64_t blocks() const { return ceil_div(planes, int64_t(block_planes)) * chunks; }
};

constexpr int kDown = 4;  // windows, or elements of dx, below each other that a thread takes

// Width, in windows, of a thread's tile where windows have a static size. The tiles of neighbouring threads begin
// this number times the stride columns apart: an odd number, or twice an odd number, keeps their loads in different
// banks.
MINIDNN_HD constexpr int steps_across(int stride) { return stride > 1 ? 3 : 7; }
// Threads per block, and blocks per SM.
constexpr int kNchwThreads = 256, kNchwBlocks = 5;
// Upper limits for windows of static size: small blocks, so there are many to load while others compute.
constexpr int kStaticThreads = 128, kStaticBlocks = 10, kTileBlocks = 6;

// For averages with windows of static size: how many steps of the windows, below each other, a thread takes dx of.
MINIDNN_HD constexpr int steps_down(int window, int stride) { return window > stride ? 2 : 1; }
// Whether dx of averages is computed by tiles, as a sum over a window of dy.
MINIDNN_HD constexpr bool gathers_tiles(int stride) { return stride == 1; }
// Blocks per SM: with given maxima, and with maxima to find.
MINIDNN_HD constexpr int max_backward_blocks(bool given) { return given ? 6 : 4; }
// Windows side by side in a strip: an odd number, which keeps the strips of neighbouring lanes in different banks.
constexpr int kStripWindows = 7;
// Minimum lines of windows per strip: those that overlap the strip above and those that overlap the strip below are
// distinct.
MINIDNN_HD constexpr int least_strip_lines(int window, int stride) {
  return window > stride ? 2 * ((window - 1) / stride) : 1;
}

}  // namespace minidnn::cuda::pooling
