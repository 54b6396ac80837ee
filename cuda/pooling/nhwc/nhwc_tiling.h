// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nhwc divides a problem among blocks and threads. Windows of compile-time size are those whose size
// is a template argument of the kernel. A strip is the part of dx that one warp computes, such as 64 rows of 8 columns
// for 32 channels.
#pragma once
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NhwcTiling {
  enum class Method {
    windows,  // Forward: a thread computes 16-byte vectors of y, or teams of threads share windows.
    // Windows of compile-time size: a thread computes a tile of y, or of dx of averages, for one 32-bit word of
    // channels.
    word_tiles,
    strips,       // windows of compile-time size: a warp computes a strip of dx of maxima
    block_tiles,  // backward for all other problems: a block computes a tile of dx in shared memory
  } method;
  StaticStep step;  // the window size and stride if they are known at compile time, else {}
  // Whether a thread computes several windows (or elements of dx), one below the other. False for windows of
  // compile-time size.
  bool several_windows;
  int64_t threads;
  int64_t blocks;      // the number of blocks per image
  int64_t smem_bytes;  // the shared memory of a block, which may exceed the device's limit
  // The number of work items of an image. A work item is a group of windows, a tile or a strip.
  int64_t items;
  int64_t items_across;
  int64_t teams;  // the number of teams of threads in a block; the teams share each window
  int64_t lines_of_strip;
  struct BlockTile {
    bool scatter;                     // whether each window adds its dy to sums of dx
    int64_t vectors, lines, columns;  // the size of the tile of dx, with 16-byte vectors of channels
    // the maximum number of rows and columns of windows that overlap the tile
    int64_t window_lines, window_columns;
    // For `scatter`: the byte offsets in shared memory of dy and of the index of each window's maximum in the tile.
    int64_t dy_at, keys_at;
  } tile;
};

// Returns the tiling of a problem, which must be one that why_not_windows() accepts. `sms` is the number of SMs of the
// device.
NhwcTiling nhwc_tiling(const PoolingProblem&, int64_t sms);
NhwcParams nhwc_params(const PoolingProblem&, const NhwcTiling&);

}  // namespace minidnn::cuda::pooling
