// SPDX-License-Identifier: Apache-2.0
// Parameters of the window sums in sliding_window.cuh, for host code and kernels. A window covers several rows of an
// image, and possibly several elements of a row. A thread has one vector: some positions of a row (NCHW) or some
// channels of a position (NHWC). A group of threads has a row or a tile of a row. In local contrast norm, an image is a
// plane (NCHW) or a sample (NHWC). In local response norm, an image is a sample; its rows are the planes of its
// channels.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/core/maths.h"

namespace minidnn {

// How windows extend along a row. none: a window has one element of a row; contiguous: it has adjacent elements;
// strided: it has every `step`-th element.
enum class Axis { none, contiguous, strided };

constexpr int kMaxReach = 4;         // largest number of positions in a window on one side of its centre
constexpr int kRowsAhead = 3;        // number of rows in flight while one row is processed
constexpr int kWindowThreads = 128;  // usual number of threads in a block
// Whether a kernel is one of those that need the most registers: gradients with means, for windows of any size.
MINIDNN_HD constexpr bool is_register_heavy(bool centered, bool backward, int64_t size) {
  return centered && backward && !size;
}
// The number of threads in a block. It is twice as large for most NHWC kernels: in a smaller block, a larger part of
// the threads computes halo, which other blocks compute, too.
MINIDNN_HD constexpr int window_threads(Axis axis, bool heavy) {
  return axis == Axis::strided && !heavy ? 2 * kWindowThreads : kWindowThreads;
}
// The number of threads for which the registers of an SM must suffice. It limits the registers of a thread.
MINIDNN_HD constexpr int window_threads_per_sm(bool heavy) { return heavy ? 384 : 512; }

struct SlidingWindowParams {
  // height: rows of an image; width: positions of a row; step: elements from a position to the next; row: elements from
  // a row to the next.
  int64_t height = 0, width = 0, step = 1, row = 0;
  int64_t elements = 0;  // number of elements of x
  int32_t behind = 0, ahead = 0;
  // A group has `threads` threads. In NHWC, `slice` threads share a position, with one vector of channels each. In
  // NCHW, each thread has one vector of positions. A group writes `own` positions (NHWC) or vectors (NCHW); on either
  // side it computes `halo` more without writing them. A block processes `tall` rows.
  uint32_t threads = 1, slice = 1, own = 1, halo = 0, tall = 1;
  // groups: number of all groups; in_block: groups of a block; tiled: 1 if a group has a tile of a row, 0 if it has the
  // whole row.
  uint32_t groups = 0, in_block = 0, tiled = 0;
  FastDivmod by_chunks, by_threads, by_tiles, by_slices, by_slice;
};

// The scalar arguments of a call of local response norm (LRN) or local contrast norm (LCN).
struct LrnFactors {
  // scale: alpha divided by the number of elements in a window; slope: 2 beta scale.
  float scale, beta, k, slope;
};

// The layout of shared memory. A line (row buffer) has a slot for the vector of each thread, and `gap` slots before,
// between and after the groups of threads.
struct SmemLayout {
  // Numbers of slots. block: those of a block's threads; gap: those of a gap; slots: all slots of a line.
  uint32_t block = 0, gap = 0, slots = 0;
  // line: bytes of a line of x or of the means; ring: bytes of a ring buffer of lines. The ring of x is at offset 0.
  uint32_t line = 0, ring = 0;
  // Byte offsets of the parts; bytes: size of all parts.
  uint32_t means = 0, staging = 0, dy = 0, g = 0, own = 0, bytes = 0;
};

}  // namespace minidnn
