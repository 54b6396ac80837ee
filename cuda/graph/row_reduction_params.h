// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.graph.row_reduction.
#pragma once
#include "cpp/graph/element_params.h"
#include "cpp/pointwise/pointwise_math.h"
#include "cpp/random/random_math.h"
#include "cuda/rows/rows_params.h"

namespace minidnn {

// The number of vectors of a thread that loads elements one by one, which takes more registers.
MINIDNN_HD constexpr int row_vectors_without_alignment(int vectors) { return vectors > 1 ? vectors / 2 : 1; }

struct RowGrid {
  rows::Shape rows;
  ElementIndexing indexing;
  FastDivmod shape[kMaxRank];  // indexing.shape
  int64_t by_divisors = 0;     // 1 if there are fewer than 2^31 elements, else 0
  PointwiseAccess broadcast[kMostElementLoads];
  int32_t broadcast_varies[kMostElementLoads]{};  // 0 if all elements of a vector have one value
  PointwiseAccess row_load[kMostRowLoads], row_store[kMostRowStores];
  // Bit k is 1 if the offset of row_load[k], or of row_store[k], is the number of the row.
  uint32_t plain_row_loads = 0, plain_row_stores = 0;
};

struct RowArgs {
  const void* load[kMostElementLoads]{};       // dense tensors
  const void* column[kMostElementLoads]{};     // tensors with one element for each column
  const void* broadcast[kMostElementLoads]{};  // other tensors
  void* store[kMostElementStores]{};
  const void* row_load[kMostRowLoads]{};
  void* row_store[kMostRowStores]{};
  double number[kMostElementNumbers]{};
  float single[kMostElementNumbers]{};  // the same numbers, rounded
  uint64_t word[kMostElementWords]{};
  PhiloxKeys keys[kMostElementSeeds];  // of the seed of each dropout
  int64_t zero = 0;                    // always 0
  float per_col = 0;                   // 1 / the number of elements of a row
};
static_assert(sizeof(RowGrid) + sizeof(RowArgs) <= 4096);  // the most bytes of parameters of a kernel

}  // namespace minidnn
