// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of gather, and their block sizes.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/gather/gather_math.h"

namespace minidnn {

constexpr int kGatherThreads = 256, kGatherAhead = 4;
// A block of gather_index_sort sorts the indices of at most kSortRows rows. It reads kSortTile indices at a
// time.
constexpr int kSortThreads = 1024, kSortRows = 1024, kSortTile = 4096;

// Forward: to[outer][index][span] = from[outer][row][span], in words. Backward: sums in the opposite direction.
struct GatherParams {
  int64_t words = 0;  // words written
  LongDivisor span;
  FastDivmod inner;  // forward: the number of indices; backward: the number of rows
  int64_t rows = 1, indices = 1;
};

}  // namespace minidnn
