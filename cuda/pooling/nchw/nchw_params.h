// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nchw. For example, a block may have rows 8 to 15 of one plane. A strip,
// for gradients of maxima, is kStripWindows adjacent columns of windows, such as columns 0 to 6; one lane of a warp
// processes a strip row by row. The key of a window is the index of its maximum among the elements of dx in the block.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Splits a linear index into three indices of a grid [planes][rows][columns].
struct Grid {
  FastDivmod by_columns, by_lines;
  Grid() = default;
  MINIDNN_HD Grid(int planes, int lines, int columns) : by_columns(columns), by_lines(planes > 1 ? lines : 1 << 30) {}
};

// The members are not grouped into nested structs, because the compiler would then order the instructions of the
// kernels differently.
struct NchwParams {
  Windows h, w;
  int64_t planes;
  int32_t block_planes;  // the number of planes in a block, or 1 if several blocks share a plane
  // The number of blocks that share a plane, and the rows of y (forward) or dx (backward) of a block.
  int32_t chunks, lines;
  // log2 of the number of threads that share a window, if the window size is not a template argument
  int32_t lane_bits;
  int32_t index_bytes;  // the number of bytes of an index, or 0 if there are no indices
  int32_t exclude_padding;
  float mean_factor;  // for averages: 1 / divisor if all windows have the same divisor, else 0
  // 1 if a thread computes kDown windows, one below the other; 0 for windows of compile-time size
  int32_t several_windows;
  int32_t one_window;  // 1 if a whole plane is one window
  // Byte offsets in shared memory: of dy (or y), and of the array with one value per window, its key or dy / divisor. x
  // (or dx) is at offset 0.
  int32_t dy_at, keys_at;
  FastDivmod by_chunks;
  // Grids of the block: all windows; groups of kDown windows whose maxima one thread finds; elements, tiles or strips
  // of y or dx that one thread computes.
  Grid windows, searches, results;
  FastDivmod by_x_columns;
  // The following members are for nchw_max_backward.
  int32_t strip_lines;  // the number of rows of windows in a strip
  // The number of strips per lane, one after the other. It is doubled if a row has more than 32 strips.
  int32_t strip_rounds;
  int32_t sums_at;  // the byte offset of the sums of dx in shared memory
  // divides by the number of lanes of a warp whose strips are side by side
  FastDivmod by_lanes;

  MINIDNN_HD int lanes() const { return 1 << lane_bits; }
  MINIDNN_HD int64_t blocks() const { return ceil_div(planes, int64_t(block_planes)) * chunks; }
};

constexpr int kDown = 4;  // the number of windows, or of elements of dx, that a thread computes one below the other

// The width of a thread's tile, in windows of compile-time size. Tiles are an odd number of columns apart, or twice an
// odd number, so that adjacent threads load from different banks of shared memory.
MINIDNN_HD constexpr int steps_across(int stride) { return stride > 1 ? 3 : 7; }
// kNchwThreads is the number of threads in a block, and kNchwBlocks is the number of blocks on an SM.
constexpr int kNchwThreads = 256, kNchwBlocks = 5;
// Upper limits for windows of compile-time size: the number of threads in a block, and the number of blocks on an SM.
// Blocks are small, so that many blocks load while others compute.
constexpr int kStaticThreads = 128, kStaticBlocks = 10, kTileBlocks = 6;

// The number of tiles of dx per thread, one below the other, for averages. A tile has stride x stride elements.
MINIDNN_HD constexpr int steps_down(int window, int stride) { return window > stride ? 2 : 1; }
// Whether the gradients of averages are computed by tiles, because each dx is a sum over a window of dy.
MINIDNN_HD constexpr bool gathers_tiles(int stride) { return stride == 1; }
// The number of blocks of nchw_max_backward on an SM. `given` tells whether the indices of the maxima are given.
MINIDNN_HD constexpr int max_backward_blocks(bool given) { return given ? 6 : 4; }
// The width of a strip in windows. It is odd, so that adjacent lanes access different banks of shared memory.
constexpr int kStripWindows = 7;
// The minimum number of rows of windows in a strip. With it, no row overlaps both the strip above and the strip below.
MINIDNN_HD constexpr int least_strip_lines(int window, int stride) {
  return window > stride ? 2 * ((window - 1) / stride) : 1;
}

}  // namespace minidnn::cuda::pooling
