// SPDX-License-Identifier: Apache-2.0
// The division of a problem by cuda.pooling.nchw: what a thread, a block and the grid compute. Windows of compile-time
// size are those whose size is a template argument of the kernel.
#pragma once
#include "cuda/pooling/nchw/nchw_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct NchwTiling {
  enum class Method {
    any_windows,       // windows of any size, forward and backward
    static_forward,    // windows of compile-time size: maxima with indices, forward
    forward_tiles,     // windows of compile-time size: tiles of y, one per thread at a time
    average_backward,  // windows of compile-time size: dx of averages
    max_backward,      // windows of compile-time size: dx of maxima, by strips of windows
  } method;
  StaticStep step;  // window and stride known at compile time; {} if they are unknown
  int64_t threads;  // threads per block
  struct Block {
    int64_t planes;  // number of whole planes in a block; 1 if a plane is split
    // chunks: blocks per plane; lines: lines of y (forward) or dx (backward) per block.
    int64_t chunks, lines;
    int64_t windows;   // largest number of lines of windows in a plane of the block
    int64_t x_lines;   // largest number of lines of x in a plane that are in shared memory
    int64_t numbered;  // number of elements that have a 16-bit number
  } block;
  struct Smem {
    // Byte offsets in shared memory, for the arrays that the method has. bytes: the size of all arrays, which may
    // exceed the shared memory of the device.
    int64_t dy_at, keys_at, sums_at, bytes;
  } smem;
  bool one_window;       // whether a plane is one window
  bool several_windows;  // whether a thread computes several windows, or elements of dx, below each other
  int64_t lane_bits;     // log2 of the number of threads per window
  struct Strips {
    // lines: lines of windows in a strip; rounds: iterations of a block's warps.
    int64_t lines, rounds;
    // lanes: strips side by side in a warp; column_pairs: pairs of chunks of columns. A warp processes one chunk of a
    // pair in an iteration, and the other chunk in the next one.
    int64_t lanes, column_pairs;
  } strips;
};

// The problem must be one that why_not_windows() accepts.
NchwTiling nchw_tiling(const PoolingProblem&);
NchwParams nchw_params(const PoolingProblem&, const NchwTiling&);

}  // namespace minidnn::cuda::pooling
