// SPDX-License-Identifier: Apache-2.0
// The parameters of gather.cu and its block sizes. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/transform/gather_math.h"

namespace minidnn {

constexpr int kGatherThreads = 256, kGatherAhead = 4;
// A block of transform_gather_order sorts the indices of at most kOrderRows rows. It reads kOrderTile indices at a
// time.
constexpr int kOrderThreads = 1024, kOrderRows = 1024, kOrderTile = 4096;

// Forward: to[outer][index][run] = from[outer][row][run], in words. Backward: sums in the opposite direction.
struct GatherWalk {
  int64_t words = 0;  // words written
  LongDivisor run;
  FastDivmod inner;  // the number of indices; backward, of rows
  int64_t rows = 1, indices = 1;
};

}  // namespace minidnn
