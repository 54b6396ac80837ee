// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernel of cuda.pointwise.vectorized: how its operands are indexed, and the FastDivmod objects
// that split an index.
#pragma once
#include "cpp/pointwise/pointwise_math.h"
#include "cuda/device/block_tile_params.h"

namespace minidnn {

struct PointwiseGrid {
  PointwiseIndexing indexing;
  PointwisePeriod a, b, c;
  FastDivmod shape[kMaxRank];
  // 1 if the output has fewer than 2^31 elements, so that 32-bit divisions by FastDivmod suffice, else 0.
  int64_t by_divisors = 0;
};

// The number of 16-byte vectors of each operand that a thread has in registers.
MINIDNN_HD constexpr int pointwise_vectors_of(int item_bytes) { return item_bytes == 1 ? 1 : kTileVectors; }

}  // namespace minidnn
