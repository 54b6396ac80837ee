// SPDX-License-Identifier: Apache-2.0
// The order in which persistent blocks, or clusters of blocks, compute the tiles of a launch.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Iterates over the tiles of a block or cluster. With 10 clusters, for example, cluster 0 has tiles 0, 19, 20, 39 ... The
// alternating direction balances the load if the tiles are sorted by decreasing time.
struct TileScheduler {
  int index, step, clusters;

  __device__ __forceinline__ TileScheduler(int first, int count)
      : index(first), step(2 * (count - first) - 1), clusters(count) {}
  __device__ __forceinline__ void advance() {
    index += step;
    step = 2 * clusters - step;
  }
};

}  // namespace minidnn
