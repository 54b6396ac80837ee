// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nhwc divides a problem: what a thread, a block and the grid compute. Windows of compile-time size
// are those whose size is a template argument of the kernel.
#pragma once
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NhwcTiling {
  enum class Method {
    windows,  // Forward: a thread computes 16-byte vectors of y, or teams of threads share windows.
    // Windows of compile-time size: a thread computes a tile for one 32-bit word of channels. It is a tile of y or, in
    // backward, of dx of averages.
    word_tiles,
    strips,       // Windows of compile-time size: a warp computes a strip (some rows and columns) of dx of maxima.
    block_tiles,  // Backward for all other problems: a block computes a tile of dx in shared memory.
  } method;
  StaticStep step;  // the window size and stride if they are template arguments of the kernel, else {}
  // Whether a thread computes several windows (or elements of dx), one below the other. It is false if the window size
  // is a template argument of the kernel.
  bool several_windows;
  int64_t threads;     // the number of threads in a block
  int64_t blocks;      // the number of blocks for an image
  int64_t smem_bytes;  // the bytes of shared memory in a block, which may exceed the device's limit
  // The number of work items of an image. With the methods `windows` and `word_tiles`, a work item is what a thread
  // computes. With the method `strips`, it is a strip, which a warp computes.
  int64_t items;
  int64_t items_across;  // the number of tiles, strips or single windows along a row of an image
  int64_t teams;         // the number of teams of threads in a block that share each window
  int64_t lines_of_strip;
  struct BlockTile {
    bool scatter;                     // whether each window adds its dy to sums of dx
    int64_t vectors, lines, columns;  // the size of the tile of dx, where a vector is 16 bytes of channels
    // the maximum number of rows and columns of windows that overlap the tile
    int64_t window_lines, window_columns;
    // The byte offsets in shared memory of dy and of the keys (indices of maxima in the tile), if each window adds its
    // dy to sums of dx.
    int64_t dy_at, keys_at;
  } tile;
};

// Returns the tiling of a problem, which must be one that why_not_windows() accepts. `sms` is the number of SMs of the
// device.
NhwcTiling nhwc_tiling(const PoolingProblem&, int64_t sms);
NhwcParams nhwc_params(const PoolingProblem&, const NhwcTiling&);

}  // namespace minidnn::cuda::pooling
