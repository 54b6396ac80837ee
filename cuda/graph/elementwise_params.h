// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.graph.elementwise.
#pragma once
#include "cpp/graph/element_params.h"
#include "cpp/pointwise/pointwise_math.h"
#include "cpp/random/random_math.h"
#include "cuda/device/block_tile_params.h"

namespace minidnn {

struct ElementwiseGrid {
  ElementIndexing indexing;
  PointwiseAccess load[kMostElementLoads], store[kMostElementStores];
  PointwisePeriod period[kMostElementLoads];
  FastDivmod shape[kMaxRank];
  int64_t by_divisors = 0;  // 1 if there are fewer than 2^31 elements, else 0
};

struct ElementwiseArgs {
  const void* load[kMostElementLoads]{};
  void* store[kMostElementStores]{};
  double number[kMostElementNumbers]{};
  float single[kMostElementNumbers]{};  // the same numbers, rounded
  uint64_t word[kMostElementWords]{};
  PhiloxKeys keys[kMostElementSeeds];  // of the seed of each dropout
  int64_t zero = 0;                    // always 0
};

}  // namespace minidnn
