// SPDX-License-Identifier: Apache-2.0
// The division of a problem by cuda.pooling.nhwc: what a thread, a block and the grid compute. Windows of compile-time
// size are those whose size is a template argument of the kernel.
#pragma once
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NhwcTiling {
  enum class Method {
    windows,  // forward: a thread computes 16-byte vectors of y, or teams of threads divide the lines of each window
    // Windows of compile-time size: a thread computes a tile of y, or of dx, for one 32-bit word of channels.
    word_tiles,
    strips,       // windows of compile-time size: a warp computes a strip of dx of maxima
    block_tiles,  // other gradients: a block computes a tile of dx, with shared memory
  } method;
  StaticStep step;  // window and stride known at compile time; {} if they are unknown
  // Whether the window size is unknown to the compiler, and a thread computes several windows or elements of dx below
  // each other.
  bool several_windows;
  int64_t threads;     // threads per block
  int64_t blocks;      // blocks per image
  int64_t smem_bytes;  // bytes of shared memory per block, perhaps more than the device has
  // Items per image. In the methods windows and word_tiles, an item is what a thread computes. In strips, it is what a
  // warp computes.
  int64_t items;
  int64_t items_across;  // number of items side by side in an image
  int64_t teams;         // method windows: teams of threads per block
  int64_t lines_of_strip;
  struct BlockTile {
    bool scatter;                          // whether windows add to dx, in phases of windows that do not overlap
    int64_t vectors, lines, columns;       // size of the tile of dx; a vector is 16 bytes of channels
    int64_t window_lines, window_columns;  // largest number of lines and columns of windows over the tile
    int64_t dy_at, keys_at;                // offsets in shared memory, used if windows add to dx
  } tile;
};

// The problem must be one that why_not_windows() accepts. sms: the number of multiprocessors of the device.
NhwcTiling nhwc_tiling(const PoolingProblem&, int64_t sms);
NhwcParams nhwc_params(const PoolingProblem&, const NhwcTiling&);

}  // namespace minidnn::cuda::pooling
