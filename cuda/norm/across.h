// SPDX-License-Identifier: Apache-2.0
// Local response norm as cuda.norm.across cuts it, for host and kernels. A thread has a strip: kAcrossOwn neighbouring
// channels of some positions in planes; in rows, where channels are innermost, a vector of them.
#pragma once
#include "cpp/core/divisor.h"

namespace minidnn {

constexpr int kAcrossSide = 4;  // channels of a window on either side
constexpr int kAcrossOwn = 4;   // channels of a strip in planes, or where rows are read by elements
// Positions of a strip in planes: backward, and where they are read by elements, four, for their numbers stay in
// registers from the sums to the end.
constexpr int kAcrossItems = 4;
constexpr int kAcrossThreads = 256;  // in rows
constexpr int kAcrossWarps = 8;      // in planes, at most: each has further channels of the same positions

struct NormAcross {
  int64_t channels = 0, plane = 0;  // plane: elements from a channel to the next
  int32_t behind = 0, ahead = 0;
  // Planes: positions of all samples, or vectors of them, and how many of those a plane has. A block has `step`
  // channels of its own, behind `halo` that it computes for these.
  // Rows: strips, and how many of those a row has.
  uint32_t columns = 0, step = 0, halo = 0, tiles = 1;
  Divisor of_plane, by_tiles;
};

// Of a call.
struct AcrossFactors {
  float scale, beta, k, slope;  // alpha / size, and 2 beta times that
};

}  // namespace minidnn
