// SPDX-License-Identifier: Apache-2.0
// Parameters of the window sums in sliding_window.cuh, for host code and kernels. A window covers several rows of an
// image, and may extend along a row. A thread has one vector: adjacent positions of a row (NCHW) or adjacent channels
// of a position (NHWC). A group of threads has a row or a part of it (a tile). An image is a plane (local contrast norm
// in NCHW) or a sample; in local response norm, the plane of each channel counts as a row.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

// How a window extends along a row. With `none`, a window has one element of a row. With `contiguous`, it has adjacent
// elements. With `strided`, it has every `step`-th element.
enum class Axis { none, contiguous, strided };

constexpr int kMaxReach = 4;         // the maximum number of positions of a window before or after its centre
constexpr int kRowsAhead = 3;        // the number of rows whose loads are in flight while one row is processed
constexpr int kWindowThreads = 128;  // the number of threads in a block of most kernels
// Whether a kernel needs the most registers: backward kernels that subtract means, for windows of any size.
MINIDNN_HD constexpr bool is_register_heavy(bool centered, bool backward, int64_t size) {
  return centered && backward && !size;
}
// The number of threads in a block. Most NHWC kernels have larger blocks, because positions near the border of two
// blocks are computed twice.
MINIDNN_HD constexpr int window_threads(Axis axis, bool heavy) {
  return axis == Axis::strided && !heavy ? 2 * kWindowThreads : kWindowThreads;
}
// The number of threads that must fit the registers of an SM.
MINIDNN_HD constexpr int window_threads_per_sm(bool heavy) { return heavy ? 384 : 512; }

struct SlidingWindowParams {
  // An image has `height` rows of `width` positions. `step` is the stride of a position and `row` the stride of a row,
  // in elements.
  int64_t height = 0, width = 0, step = 1, row = 0;
  int64_t elements = 0;  // the number of elements of x
  int32_t behind = 0, ahead = 0;
  // A group has `threads` threads. In NHWC, `slice` threads share a position. A group writes `own` positions (NHWC) or
  // vectors (NCHW), and also computes `halo` of them on either side for its own windows. A block processes `tall` rows.
  uint32_t threads = 1, slice = 1, own = 1, halo = 0, tall = 1;
  // A block has in_block of the `groups` groups of threads. `tiled` is 1 if a group has a part of a row, and 0 if it
  // has the whole row.
  uint32_t groups = 0, in_block = 0, tiled = 0;
  FastDivmod by_chunks, by_threads, by_tiles, by_slices, by_slice;
};

// The scalar arguments of a local response norm or a local contrast norm.
struct LrnFactors {
  // `scale` is alpha divided by the number of elements in a window. `slope` is 2 beta scale.
  float scale, beta, k, slope;
};

// The layout of shared memory. A line is the buffer of one row. It has a slot, the memory of one vector, for each
// thread, and gaps around the groups of threads for the vectors beyond their ends.
struct SmemLayout {
  // The number of slots for the threads of a block, in a gap between groups of threads, and in a whole line.
  uint32_t block = 0, gap = 0, slots = 0;
  // The bytes of one line and of the ring buffer of lines. The ring buffer of x is at offset 0.
  uint32_t line = 0, ring = 0;
  // Byte offsets in shared memory. `bytes` is the total size.
  uint32_t means = 0, staging = 0, dy = 0, g = 0, own = 0, bytes = 0;
};

}  // namespace minidnn
