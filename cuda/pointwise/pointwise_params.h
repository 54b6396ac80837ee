// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.pointwise.vectorized: the indexing of the operands, and its sizes as divisors.
#pragma once
#include "cpp/pointwise/pointwise_math.h"
#include "cuda/device/block_tile_params.h"

namespace minidnn {

struct PointwisePeriod {
  FastDivmod inner, length;
};
struct PointwiseGrid {
  PointwiseIndexing indexing;
  PointwisePeriod a, b, c;
  FastDivmod shape[kMaxRank];
  int64_t by_divisors = 0;  // there are fewer than 2^31 elements, so 32-bit divisors do
};

// The number of 16-byte vectors of a thread.
MINIDNN_HD constexpr int pointwise_vectors_of(int item_bytes) { return item_bytes == 1 ? 1 : kTileVectors; }

}  // namespace minidnn
