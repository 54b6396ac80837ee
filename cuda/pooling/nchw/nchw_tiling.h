// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nchw divides a problem among blocks and threads. Windows of compile-time size are those whose size
// is a template argument of the kernel. A strip is adjacent columns of windows, such as columns 0 to 6, which one lane
// of a warp processes row by row.
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
    max_backward,      // windows of compile-time size: dx of maxima, by strips
  } method;
  StaticStep step;  // the window size and stride if they are known at compile time, else {}
  int64_t threads;
  struct Block {
    int64_t planes;  // the number of planes in a block, or 1 if several blocks share a plane
    // The number of blocks that share a plane, and the rows of y (forward) or dx (backward) of a block.
    int64_t chunks, lines;
    int64_t windows;   // the maximum number of rows of windows in a block, per plane
    int64_t x_lines;   // the maximum number of rows of x in a block, per plane
    int64_t numbered;  // the number of elements of a block, which have 16-bit indices
  } block;
  struct Smem {
    // Byte offsets of arrays in shared memory, and their total size, which may exceed the device's limit.
    int64_t dy_at, keys_at, sums_at, bytes;
  } smem;
  bool one_window;       // whether a whole plane is one window
  bool several_windows;  // whether a thread computes several windows (or elements of dx), one below the other
  int64_t lane_bits;     // log2 of the number of threads that share a window
  struct Strips {
    // A strip has `lines` rows of windows. A lane processes `rounds` strips, or twice as many if a row has more than
    // 32.
    int64_t lines, rounds;
    // A group is the `lanes` strips that a warp has side by side. All even groups are processed before all odd groups,
    // and column_pairs is the number of pairs of such groups in a row.
    int64_t lanes, column_pairs;
  } strips;
};

// Returns the tiling of a problem, which must be one that why_not_windows() accepts.
NchwTiling nchw_tiling(const PoolingProblem&);
NchwParams nchw_params(const PoolingProblem&, const NchwTiling&);

}  // namespace minidnn::cuda::pooling
