// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nchw.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Splits a linear index into three indices of a grid [planes][rows][columns]. If there is only one plane, the division
// by the number of rows is not needed, and the divisor is 1 << 30.
struct Grid {
  FastDivmod by_columns, by_lines;
  Grid() = default;
  MINIDNN_HD Grid(int planes, int lines, int columns) : by_columns(columns), by_lines(planes > 1 ? lines : 1 << 30) {}
};

// The parameters of the kernels. The members are not grouped into nested structs, because the compiler would then order
// the instructions of the kernels differently.
struct NchwParams {
  Windows h, w;
  int64_t planes;
  int32_t block_planes;  // the number of planes in a block, or 1 if several blocks share a plane
  // `chunks` is the number of blocks that share a plane. `lines` is the number of rows of y (forward) or dx (backward)
  // in a block.
  int32_t chunks, lines;
  // log2 of the number of threads that share a window, if the window size is not a template argument
  int32_t lane_bits;
  int32_t index_bytes;  // the number of bytes of an index, or 0 if there are no indices
  int32_t exclude_padding;
  float mean_factor;  // for averages: 1 / divisor if all windows have the same divisor, else 0
  // 1 if a thread computes kDown windows, one below the other, and the window size is not a template argument. Else 0.
  int32_t several_windows;
  int32_t one_window;  // 1 if a whole plane is one window, so that its elements need no coordinates, else 0
  // Byte offsets in shared memory. x (or dx) is at offset 0. dy (or y) is at offset dy_at. At offset keys_at, there is
  // one value per window: its key (the index of its maximum among the elements of dx in the block) or its scaled dy (dy
  // / divisor).
  int32_t dy_at, keys_at;
  FastDivmod by_chunks;
  // Grids that split a linear index in a block into plane, row and column. `windows` is the grid of the block's
  // windows. `searches` is the grid of groups of kDown windows, one below the other, whose maxima one thread finds.
  // `results` is the grid of the elements, tiles or strips of y or dx that one thread computes.
  Grid windows, searches, results;
  FastDivmod by_x_columns;
  // The following members are for nchw_max_backward. A strip is some columns of windows, which a lane processes row by
  // row. Neighbouring lanes of a warp have neighbouring strips.
  int32_t strip_lines;  // the number of rows of windows in a strip (some rows and columns of windows)
  // A lane processes this number of strips, one after the other, or twice this number if a row has more than 32 strips.
  int32_t strip_rounds;
  int32_t sums_at;  // the byte offset of the sums of dx in shared memory
  // divides by the number of neighbouring lanes whose strips (some columns of windows each) are in the same rows
  FastDivmod by_lanes;

  MINIDNN_HD int lanes() const { return 1 << lane_bits; }
  MINIDNN_HD int64_t blocks() const { return ceil_div(planes, int64_t(block_planes)) * chunks; }
};

constexpr int kDown = 4;  // the number of windows, or of elements of dx, that a thread computes one below the other

// The width of a thread's tile, as a number of windows of compile-time size. Multiplied by the stride, it is the
// distance in columns between the tiles of neighbouring threads. This distance is an odd number or twice an odd number,
// so the loads of neighbouring threads are in different banks of shared memory.
MINIDNN_HD constexpr int steps_across(int stride) { return stride > 1 ? 3 : 7; }
// kNchwThreads is the number of threads in a block, and kNchwBlocks is the number of blocks on an SM.
constexpr int kNchwThreads = 256, kNchwBlocks = 5;
// Upper limits for windows of compile-time size: the number of threads in a block, and the number of blocks on an SM.
// Blocks are small, so that many blocks load while others compute.
constexpr int kStaticThreads = 128, kStaticBlocks = 10, kTileBlocks = 6;

// The number of tiles of dx that a thread computes one below the other, for averages with windows of compile-time size.
// A tile has stride x stride elements.
MINIDNN_HD constexpr int steps_down(int window, int stride) { return window > stride ? 2 : 1; }
// Whether the gradients of averages are computed by tiles of windows. At stride 1, each dx is a sum over a window of
// dy.
MINIDNN_HD constexpr bool gathers_tiles(int stride) { return stride == 1; }
// The number of blocks of nchw_max_backward on an SM. `given` tells whether the indices of the maxima are given. If
// they are not, the kernel finds the maxima.
MINIDNN_HD constexpr int max_backward_blocks(bool given) { return given ? 6 : 4; }
// The number of columns of windows in a strip, which one lane processes. It is odd, so the strips of neighbouring lanes
// are in different banks of shared memory.
constexpr int kStripWindows = 7;
// The minimum number of rows of windows in a strip (the windows of a lane). With this many rows, no row overlaps both
// the strip above and
// the strip below.
MINIDNN_HD constexpr int least_strip_lines(int window, int stride) {
  return window > stride ? 2 * ((window - 1) / stride) : 1;
}

}  // namespace minidnn::cuda::pooling
