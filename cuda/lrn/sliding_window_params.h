// SPDX-License-Identifier: Apache-2.0
// Parameters of the window sums in sliding_window.cuh, for host and kernels. Windows extend over several rows of an
// image, and possibly along the rows. A thread has one vector: of a row's positions, or of a position's channels. A
// group of threads has a row or a tile of a row. An image is, in local contrast norm, a plane or (channels innermost) a
// sample; in local response norm it is a sample, and its rows are the planes of its channels.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/core/maths.h"

namespace minidnn {

// How windows extend along a row: not at all; over adjacent elements; over every `step`-th element.
enum class Axis { none, contiguous, strided };

constexpr int kMaxReach = 4;         // the largest number of positions of a window on one side of its centre
constexpr int kRowsAhead = 3;        // rows in flight while one is processed
constexpr int kWindowThreads = 128;  // threads of a block
// The kernels whose threads need the most registers: gradients with means, for windows of any size.
MINIDNN_HD constexpr bool is_register_heavy(bool centered, bool backward, int64_t size) {
  return centered && backward && !size;
}
// Twice as many where channels are innermost: in a smaller block, more of the threads compute halo that belongs to
// another block.
MINIDNN_HD constexpr int window_threads(Axis axis, bool heavy) {
  return axis == Axis::strided && !heavy ? 2 * kWindowThreads : kWindowThreads;
}
// Threads of an SM for which its registers must suffice: a bound of the registers per thread.
MINIDNN_HD constexpr int window_threads_per_sm(bool heavy) { return heavy ? 384 : 512; }

struct SlidingWindowParams {
  // Rows of an image; positions of a row; elements from a position to the next, and from a row to the next.
  int64_t height = 0, width = 0, step = 1, row = 0;
  int64_t elements = 0;  // elements of a tensor
  int32_t behind = 0, ahead = 0;
  // A group has `threads` threads: `slice` of them for each position (one vector of channels each) or, where channels
  // are not innermost, one for each vector of positions. It writes `own` positions or vectors of positions; the `halo`
  // on either side is only computed. A block processes `tall` rows.
  uint32_t threads = 1, slice = 1, own = 1, halo = 0, tall = 1;
  // Groups in all; groups of a block; tiled: 1 where a group has a tile of a row, not all of it.
  uint32_t groups = 0, in_block = 0, tiled = 0;
  FastDivmod by_chunks, by_threads, by_tiles, by_slices, by_slice;
};

// The scalar arguments of an LRN or LCN call.
struct LrnFactors {
  float scale, beta, k, slope;  // scale: alpha / elements of a window; slope: 2 beta scale
};

// The layout of shared memory. A line has a slot for the vector of each thread, and `gap` slots before, between and
// after the groups.
struct SmemLayout {
  uint32_t block = 0, gap = 0, slots = 0;  // slots: of the threads, of a gap, of a line
  uint32_t line = 0, ring = 0;             // bytes of a line of x or of the means; of a ring of lines. x is at 0
  uint32_t means = 0, staging = 0, dy = 0, g = 0, own = 0, bytes = 0;  // byte offsets; bytes: the size of all
};

}  // namespace minidnn
