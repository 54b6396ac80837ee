// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nhwc divides a problem: what a thread, a block and the grid compute.
#pragma once
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NhwcTiling {
  enum class Method {
    windows,      // forward: a thread computes vectors of y; or teams of threads divide the lines of each window
    word_tiles,   // windows of static size: a thread computes a tile of y, or of dx, for one 32-bit word of channels
    strips,       // gradients of maxima, windows of static size: a warp computes a strip of dx
    block_tiles,  // other gradients: a block computes a tile of dx in shared memory
  } method;
  StaticStep step;       // {}: the size of the windows is unknown to the compiler
  bool several_windows;  // it is unknown, and a thread takes several windows or elements of dx below each other
  int64_t threads;       // per block
  int64_t blocks;        // per image
  int64_t smem_bytes;    // may be more than the device has
  int64_t items;         // windows, word_tiles: threads per image. strips: warps per image
  int64_t items_across;  // items side by side
  int64_t teams;         // windows: teams per block
  int64_t lines_of_strip;
  struct BlockTile {
    bool scatter;                          // windows add to dx, in phases of windows that do not overlap
    int64_t vectors, lines, columns;       // of dx; a vector is 16 bytes of channels
    int64_t window_lines, window_columns;  // at most, of the windows over it
    int64_t dy_at, keys_at;                // offsets in shared memory where windows add to dx
  } tile;
};

// For a problem that why_not_windows() accepts, and a device with `sms` multiprocessors.
NhwcTiling nhwc_tiling(const PoolingProblem&, int64_t sms);
NhwcParams nhwc_params(const PoolingProblem&, const NhwcTiling&);

}  // namespace minidnn::cuda::pooling
