// SPDX-License-Identifier: Apache-2.0
// The parameters of split_k.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// The sums of the splits of k: [partition, batch, m, columns]. A partition is one split. A quad is four columns of a
// row; `columns` is a multiple of four.
struct SplitKPartitions {
  const float* sums = nullptr;  // [partition, batch, m, columns]
  // the stride of partitions, in quads
  int64_t partition_stride = 0;
  int64_t count = 0;
  uint32_t quads = 0;  // the number of quads in a partition
  FastDivmod columns;  // divides by the number of quads in a row
  FastDivmod rows;     // divides by the number of rows in a matrix
};

}  // namespace minidnn
