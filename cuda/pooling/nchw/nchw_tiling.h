// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nchw divides a problem: what a thread, a block and the grid compute.
#pragma once
#include "cuda/pooling/nchw/nchw_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NchwTiling {
  enum class Method {
    any_windows,       // windows of any size, in both directions
    static_forward,    // windows of static size: maxima with indices
    forward_tiles,     // windows of static size: a thread computes a tile of y
    average_backward,  // windows of static size: dx of averages
    max_backward,      // windows of static size: windows add to dx by strips
  } method;
  StaticStep step;  // {}: the size of the windows is unknown to the compiler
  int64_t threads;  // per block
  struct Block {
    int64_t planes;         // whole planes; 1 where a plane is split
    int64_t chunks, lines;  // blocks per plane, and lines of y (forward) or dx (backward) per block
    int64_t windows;        // at most, lines of windows of a plane
    int64_t x_lines;        // at most, lines of x of a plane that are in shared memory
    int64_t numbered;       // elements that have a 16-bit number
  } block;
  struct Smem {
    int64_t dy_at, keys_at, sums_at, bytes;  // offsets of what the method has; bytes may exceed those of the device
  } smem;
  bool one_window;       // a plane is one window
  bool several_windows;  // a thread takes several windows, or elements of dx, below each other
  int64_t lane_bits;     // log2 of the threads per window
  struct Strips {
    int64_t lines, rounds;        // lines of windows per strip; iterations of a block's warps
    int64_t lanes, column_pairs;  // strips side by side in a warp; pairs of chunks of columns, a warp takes one each
  } strips;
};

// For a problem that why_not_windows() accepts.
NchwTiling nchw_tiling(const PoolingProblem&);
NchwParams nchw_params(const PoolingProblem&, const NchwTiling&);

}  // namespace minidnn::cuda::pooling
