// SPDX-License-Identifier: Apache-2.0
// The parameters of the gather kernels, and the sizes of their blocks.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/gather/gather_math.h"

namespace minidnn {

constexpr int kGatherThreads = 256, kGatherAhead = 4;
// A block of gather_index_sort sorts the indices of at most kSortRows rows. It reads kSortTile indices at a time.
constexpr int kSortThreads = 1024, kSortRows = 1024, kSortTile = 4096;

// Forward: y[outer][index][0 .. span) = x[outer][row of the index][0 .. span), counted in words of up to 16 bytes.
// Backward: each row of dx is the sum of the rows of dy whose indices select it.
struct GatherParams {
  int64_t words = 0;  // words of the result
  LongDivisor span;
  FastDivmod inner;  // size of the result's middle dimension: indices (forward) or rows (backward)
  int64_t rows = 1, indices = 1;
};

}  // namespace minidnn
