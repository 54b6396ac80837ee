// SPDX-License-Identifier: Apache-2.0
// The parameters of split_k.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

// The sums of a product whose k is split. A partition holds the sums of one split: [batch, m, columns], where the
// number of columns is a multiple of four. A quad is four columns of a row.
struct SplitKPartitions {
  const float* sums = nullptr;   // [partitions, batch, m, columns]
  int64_t partition_stride = 0;  // distance between neighbouring partitions, in quads
  int64_t count = 0;
  uint32_t quads = 0;  // number of quads in a partition
  FastDivmod columns;  // divisor: number of quads in a row
  FastDivmod rows;     // divisor: number of rows in a matrix
};

}  // namespace minidnn
