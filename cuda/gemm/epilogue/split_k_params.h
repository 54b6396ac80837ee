// SPDX-License-Identifier: Apache-2.0
// The parameters of split_k.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// The sums of a matrix product whose k is split. A partition holds the sums of one split, with the layout [batch, m,
// columns]; `columns` is a multiple of four. A quad is four columns of a row.
struct SplitKPartitions {
  const float* sums = nullptr;  // the sums of all splits of k, with the layout [partitions, batch, m, columns]
  // The distance between neighbouring partitions (sums of one split of k), in quads of four floats.
  int64_t partition_stride = 0;
  int64_t count = 0;
  uint32_t quads = 0;  // the number of quads (four columns of a row) in the sums of one split of k
  FastDivmod columns;  // for divisions by the number of quads (four columns) in a row
  FastDivmod rows;     // for divisions by the number of rows in a matrix of the batch
};

}  // namespace minidnn
