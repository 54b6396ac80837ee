// SPDX-License-Identifier: Apache-2.0
// What gather.cu and its engines agree on. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/transform/gather_math.h"

namespace minidnn {

constexpr int kGatherThreads = 256, kGatherAhead = 4;
// A block puts in order the indices of so many rows at most, and looks at so many indices at a time.
constexpr int kOrderThreads = 1024, kOrderRows = 1024, kOrderTile = 4096;

// to[outer][index][run] = from[outer][row][run], in words; or the sums, the other way round.
struct GatherWalk {
  int64_t words = 0;  // of what is written
  LongDivisor run;
  FastDivmod inner;  // indices, or backward rows
  int64_t rows = 1, indices = 1;
};

}  // namespace minidnn
