// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.pooling.nchw.
#pragma once
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Splits a number into indices of a grid [planes][lines][columns]. With one plane, no division by the number of lines
// is needed.
struct Grid {
  FastDivmod by_columns, by_lines;
  Grid() = default;
  MINIDNN_HD Grid(int planes, int lines, int columns) : by_columns(columns), by_lines(planes > 1 ? lines : 1 << 30) {}
};

// The members are not grouped into nested structs: with these, the compiler orders the instructions of the kernels
// differently.
struct NchwParams {
  Windows h, w;
  int64_t planes;
  int32_t block_planes;  // planes per block; 1 if a plane is split among blocks
  // chunks: blocks per plane; lines: lines of y (forward) or dx (backward) per block.
  int32_t chunks, lines;
  int32_t lane_bits;    // log2 of the threads per window, if the window size is unknown to the compiler
  int32_t index_bytes;  // bytes of an index; 0 if there are no indices
  int32_t exclude_padding;
  float mean_factor;  // 1 / divisor if all windows have the same divisor, else 0
  // 1 if the window size is unknown to the compiler and a thread computes kDown windows below each other, else 0.
  int32_t several_windows;
  int32_t one_window;  // 1 if a plane is one window, so that its elements need no coordinates; else 0
  // Offsets in shared memory; x (or dx) is at offset 0. dy_at: the offset of dy or y; keys_at: the offset of the keys
  // (numbers of the maxima) or of the scaled dy (dy / divisor).
  int32_t dy_at, keys_at;
  FastDivmod by_chunks;
  // The grids of a block. windows: its windows; searches: the groups of windows that a thread searches at a time;
  // results: the units (elements or tiles) of y or dx that a thread computes at a time.
  Grid windows, searches, results;
  FastDivmod by_x_columns;
  // The following members are for nchw_max_backward, in which windows add to dx. The lanes of a warp have neighbouring
  // strips of windows. A strip is some columns of windows, processed line by line.
  int32_t strip_lines;   // lines of windows in a strip
  int32_t strip_rounds;  // number of iterations of a block's warps
  int32_t sums_at;       // offset of the sums in shared memory, after dy
  FastDivmod by_lanes;   // divides by the number of strips side by side in a warp

  MINIDNN_HD int lanes() const { return 1 << lane_bits; }
  MINIDNN_HD int64_t blocks() const { return ceil_div(planes, int64_t(block_planes)) * chunks; }
};

constexpr int kDown = 4;  // number of windows, or of elements of dx, below each other that a thread computes

// The width of a thread's tile in windows, for windows of compile-time size. The tiles of neighbouring threads begin
// (this width times the stride) columns apart. This is an odd number or twice an odd number, so their loads are in
// different banks of shared memory.
MINIDNN_HD constexpr int steps_across(int stride) { return stride > 1 ? 3 : 7; }
// kNchwThreads: threads per block; kNchwBlocks: blocks per SM.
constexpr int kNchwThreads = 256, kNchwBlocks = 5;
// Upper limits for windows of compile-time size: threads per block, and blocks per SM. Blocks are small, so that many
// blocks load while others compute.
constexpr int kStaticThreads = 128, kStaticBlocks = 10, kTileBlocks = 6;

// For averages with windows of compile-time size: the number of tiles of dx, of stride x stride elements, that a thread
// computes below each other.
MINIDNN_HD constexpr int steps_down(int window, int stride) { return window > stride ? 2 : 1; }
// Whether dx of averages is computed by tiles, where each dx is a sum over a window of dy.
MINIDNN_HD constexpr bool gathers_tiles(int stride) { return stride == 1; }
// Blocks of nchw_max_backward per SM. given: whether the indices of the maxima are given; if not, the kernel finds the
// maxima.
MINIDNN_HD constexpr int max_backward_blocks(bool given) { return given ? 6 : 4; }
// The number of windows side by side in a strip. It is odd, so the strips of neighbouring lanes are in different banks
// of shared memory.
constexpr int kStripWindows = 7;
// The minimum of lines of windows in a strip. Then no line overlaps both the strip above and the strip below.
MINIDNN_HD constexpr int least_strip_lines(int window, int stride) {
  return window > stride ? 2 * ((window - 1) / stride) : 1;
}

}  // namespace minidnn::cuda::pooling
