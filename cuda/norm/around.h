// SPDX-License-Identifier: Apache-2.0
// Local contrast norm as cuda.norm.around cuts it, for host and kernels. A row is what lies end to end of the innermost
// spatial dimension: its positions, or their channels. A thread has a vector of each of some rows below each other.
#pragma once
#include "cpp/core/divisor.h"

namespace minidnn {

constexpr int kAroundThreads = 256;

struct NormAround {
  int64_t row = 0, step = 0;      // elements of a row; from a position to the next
  int64_t height = 0, width = 0;  // rows of an image, positions of a row
  int32_t behind = 0, ahead = 0;
  uint32_t threads = 0;
  Divisor by_vectors, by_groups, by_step;  // vectors of a row, groups of rows in an image, vectors of a position
};

// Of a call.
struct AroundFactors {
  float scale, beta, k, slope;  // alpha / size^d, and 2 beta times that
};

}  // namespace minidnn
