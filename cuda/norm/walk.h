// SPDX-License-Identifier: Apache-2.0
// Windows down the rows of images, and maybe along them, as threads take them that walk down the rows: for host and
// kernels. A thread has a vector of a row's positions, or of a position's channels; a group of threads has a row, or a
// tile of it. An image is a plane or a sample of local contrast norm, or, of local response norm, a sample whose rows
// are its planes.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/core/maths.h"

namespace minidnn {

enum class Along { nothing, beside, apart };  // windows along rows: none; over neighbours; over what lies `step` apart

constexpr int kWalkReach = 4;      // of windows on either side
constexpr int kWalkAhead = 3;      // rows on their way while one is computed with
constexpr int kWalkThreads = 128;  // of a block
// Gradients with means of windows of any size, of which a thread keeps the most.
MINIDNN_HD constexpr bool walk_is_heavy(bool centered, bool backward, int64_t size) {
  return centered && backward && !size;
}
// Where channels are innermost, twice as many, or else more of them compute what is another block's.
MINIDNN_HD constexpr int walk_threads(Along along, bool heavy) {
  return along == Along::apart && !heavy ? 2 * kWalkThreads : kWalkThreads;
}
// Registers: of as many threads of an SM.
MINIDNN_HD constexpr int walk_residents(bool heavy) { return heavy ? 384 : 512; }

struct NormWalk {
  int64_t height = 0, width = 0, step = 1, row = 0;  // rows; positions of one; elements to the next position, row
  int64_t elements = 0;                              // of a tensor
  int32_t behind = 0, ahead = 0;
  // A group's threads: `slice` vectors of channels for each of some positions, or of vectors of positions. It writes
  // `own` of those, behind `halo`, and rows by `tall`.
  uint32_t threads = 1, slice = 1, own = 1, halo = 0, tall = 1;
  uint32_t groups = 0, in_block = 0, tiled = 0;  // tiled: rows go on beside a group
  FastDivmod by_pieces, by_threads, by_tiles, by_slices, by_slice;
};

// Of a call, of windows of all kinds.
struct WalkFactors {
  float scale, beta, k, slope;  // alpha by the elements of a window, and 2 beta times that
};

// Shared memory, in bytes. A line has a vector of each thread, and `gap` more between groups and around them.
struct SmemLayout {
  uint32_t block = 0, gap = 0, slots = 0;
  uint32_t line = 0, ring = 0;                                          // of x, at 0, and of the means; of all lines
  uint32_t means = 0, arriving = 0, dy = 0, g = 0, own = 0, bytes = 0;  // where they begin
};

}  // namespace minidnn
