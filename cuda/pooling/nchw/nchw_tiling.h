// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nchw divides a problem: what a thread, a block and the grid compute. Windows of compile-time size
// are those whose size is a template argument of the kernel.
#pragma once
#include "cuda/pooling/nchw/nchw_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NchwTiling {
  enum class Method {
    any_windows,       // windows of any size, forward or backward
    static_forward,    // windows of compile-time size: maxima with indices
    forward_tiles,     // windows of compile-time size: maxima without indices, or averages
    average_backward,  // windows of compile-time size: dx of averages
    max_backward,      // windows of compile-time size: dx of maxima, by strips (columns of windows)
  } method;
  StaticStep step;  // the window size and stride if they are template arguments of the kernel, else {}
  int64_t threads;  // the number of threads in a block
  struct Block {
    int64_t planes;  // the number of whole planes in a block, or 1 if several blocks share a plane
    // `chunks` is the number of blocks that share a plane. `lines` is the number of rows of y (forward) or dx
    // (backward) in a block.
    int64_t chunks, lines;
    int64_t windows;   // the maximum number of rows of windows that a block has in each plane
    int64_t x_lines;   // the maximum number of rows of x in shared memory, per plane
    int64_t numbered;  // the number of elements in a block that are numbered with 16 bits
  } block;
  struct Smem {
    // Byte offsets in shared memory, for the arrays that the method needs. `bytes` is the size of all arrays, which may
    // exceed the shared memory of the device.
    int64_t dy_at, keys_at, sums_at, bytes;
  } smem;
  bool one_window;       // whether a whole plane is one window
  bool several_windows;  // whether a thread computes several windows (or elements of dx), one below the other
  int64_t lane_bits;     // log2 of the number of threads that share a window
  struct Strips {
    // `lines` is the number of rows of windows in a strip (some columns of windows). A lane processes `rounds` strips,
    // one after the other, or 2 * rounds if a row has more than 32 strips.
    int64_t lines, rounds;
    // `lanes` is the number of neighbouring lanes of a warp whose strips (some columns of windows each) are in the same
    // rows. These strips form a group, and neighbouring groups form a pair. `column_pairs` is the number of pairs side
    // by side. In an iteration, warps process only the first group of each pair, or only the second.
    int64_t lanes, column_pairs;
  } strips;
};

// Returns the tiling of a problem, which must be one that why_not_windows() accepts.
NchwTiling nchw_tiling(const PoolingProblem&);
NchwParams nchw_params(const PoolingProblem&, const NchwTiling&);

}  // namespace minidnn::cuda::pooling
