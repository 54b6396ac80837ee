// SPDX-License-Identifier: Apache-2.0
// The parameters of the gather kernels, and the sizes of their blocks.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/gather/gather_math.h"

namespace minidnn {

constexpr int kGatherThreads = 256, kGatherAhead = 4;
// The number of threads of a block of gather_index_sort, the maximum number of rows that it sorts, and the number of
// indices that it reads at a time.
constexpr int kSortThreads = 1024, kSortRows = 1024, kSortTile = 4096;

// Forward: y[outer][i][0 .. span) = x[outer][index[i]][0 .. span), where `span` counts words of up to 16 bytes.
// Backward: each row of dx is the sum of the rows of dy whose indices select it.
struct GatherParams {
  int64_t words = 0;  // the number of words (of up to 16 bytes) of the result
  LongDivisor span;
  // The size of the result's middle dimension: the number of indices (forward) or of rows (backward).
  FastDivmod inner;
  int64_t rows = 1, indices = 1;
};

}  // namespace minidnn
