// SPDX-License-Identifier: Apache-2.0
// Parameters of the window sums in sliding_window.cuh, for host code and kernels. A window covers several rows of an
// image, and may also extend along a row. A thread has one vector: some positions of a row (NCHW) or some channels of a
// position (NHWC). A group of threads has a row or a tile of a row. In local contrast norm, an image is a plane (NCHW)
// or a sample (NHWC). In local response norm, an image is a sample, and the plane of each channel counts as a row.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

// How a window extends along a row. With `none`, a window has one element of a row. With `contiguous`, it has adjacent
// elements. With `strided`, it has every `step`-th element.
enum class Axis { none, contiguous, strided };

constexpr int kMaxReach = 4;         // the maximum number of positions of a window on one side of its centre
constexpr int kRowsAhead = 3;        // the number of rows whose loads are in flight while one row is processed
constexpr int kWindowThreads = 128;  // the number of threads in a block of most kernels
// Whether a kernel is one of those that need the most registers: backward kernels that subtract means, for windows of
// any size.
MINIDNN_HD constexpr bool is_register_heavy(bool centered, bool backward, int64_t size) {
  return centered && backward && !size;
}
// The number of threads in a block. For most NHWC kernels, it is twice as large as for NCHW. Positions near the border
// of two blocks are computed by both blocks. With smaller blocks, more positions would be computed twice.
MINIDNN_HD constexpr int window_threads(Axis axis, bool heavy) {
  return axis == Axis::strided && !heavy ? 2 * kWindowThreads : kWindowThreads;
}
// The number of threads for which the registers of an SM must suffice. It limits the number of registers per thread.
MINIDNN_HD constexpr int window_threads_per_sm(bool heavy) { return heavy ? 384 : 512; }

struct SlidingWindowParams {
  // `height` is the number of rows of an image, and `width` is the number of positions of a row. `step` is the distance
  // from a position to the next, in elements. `row` is the distance from a row to the next, in elements.
  int64_t height = 0, width = 0, step = 1, row = 0;
  int64_t elements = 0;  // the number of elements of x
  int32_t behind = 0, ahead = 0;
  // A group has `threads` threads. In NHWC, `slice` threads share a position, and each has one vector of its channels.
  // In NCHW, each thread has one vector of positions. A group writes the results of `own` positions (NHWC) or vectors
  // (NCHW). It also computes `halo` positions or vectors before these and `halo` after these, which it does not write.
  // A block processes `tall` rows.
  uint32_t threads = 1, slice = 1, own = 1, halo = 0, tall = 1;
  // `groups` is the number of all groups of threads, and `in_block` is the number of groups in a block. `tiled` is 1 if
  // a group has a tile of a row, and 0 if it has the whole row.
  uint32_t groups = 0, in_block = 0, tiled = 0;
  FastDivmod by_chunks, by_threads, by_tiles, by_slices, by_slice;
};

// The scalar arguments of a local response norm or a local contrast norm.
struct LrnFactors {
  // `scale` is alpha divided by the number of elements in a window. `slope` is 2 beta scale.
  float scale, beta, k, slope;
};

// The layout of shared memory. A line is the buffer of one row. It has a slot for the vector of each thread, and `gap`
// slots before, between and after the groups of threads.
struct SmemLayout {
  // Three numbers of slots, where a slot is the memory of one vector. `block` is the number of slots for the threads of
  // a block. `gap` is the number of slots in a gap between groups of threads. `slots` is the number of slots in a whole
  // line.
  uint32_t block = 0, gap = 0, slots = 0;
  // `line` is the bytes of a line (the buffer of one row) of x or of the means. `ring` is the bytes of a ring buffer of
  // lines. The ring buffer of x is at offset 0.
  uint32_t line = 0, ring = 0;
  // The byte offsets of the arrays in shared memory, and `bytes`, the size of all arrays.
  uint32_t means = 0, staging = 0, dy = 0, g = 0, own = 0, bytes = 0;
};

}  // namespace minidnn
