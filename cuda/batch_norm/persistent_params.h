// SPDX-License-Identifier: Apache-2.0
// How cuda.batch_norm.persistent divides a dense batch norm, for host and kernels.
#pragma once
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// A chunk is the items that one block of a cluster holds, of a channel (planes) or a tile
// (columns).
struct PersistentTiling {
  ChannelTiling channels;
  uint32_t statistics = 1;     // of a cluster
  uint32_t block_vectors = 0;  // vectors of a tensor in a block
  uint32_t stage_vectors = 0;  // vectors of a thread that it waits for at a time
  uint32_t within_warps = 0;   // 1: rows of threads first join within their warp
  uint32_t sums_bytes = 0;     // of shared memory, before the vectors: sums, lines and scratch
};
constexpr int kStages = 4, kVectorsAtOnce = 4;  // stages of a thread's copies; vectors processed at a time
// Threads of a block at most, and of an SM: all sums but forward planes' moments take more than 64 registers.
MINIDNN_HD constexpr int persistent_threads(bool backward, bool columns) { return backward || columns ? 512 : 1024; }

}  // namespace minidnn
