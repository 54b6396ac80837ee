// SPDX-License-Identifier: Apache-2.0
// The parameters of split_k.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

// The sums of a product whose k was split. A partition is the result of one split: [batch, m, 4 * columns].
struct SplitKPartitions {
  const float* sums = nullptr;   // [count, batch, m, 4 * columns]
  int64_t partition_stride = 0;  // in groups of four elements
  int64_t count = 0;
  uint32_t quads = 0;  // groups of four columns in a partition
  FastDivmod columns;  // groups of four columns in a row
  FastDivmod rows;     // m
};

}  // namespace minidnn
