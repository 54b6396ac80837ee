// SPDX-License-Identifier: Apache-2.0
// How cuda.batch_norm.persistent divides a dense batch norm among clusters, blocks and threads. Host and kernels use
// it.
#pragma once
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// A chunk is what one block of a cluster holds: part of a channel (NCHW), or some rows of a tile of columns (NHWC).
struct PersistentTiling {
  ChannelTiling channels;
  uint32_t statistics = 1;     // channels that a cluster processes, each with its own mean and variance
  uint32_t block_vectors = 0;  // vectors of x that a block holds (backward, also the vectors of dy)
  uint32_t stage_vectors = 0;  // vectors that a thread copies per stage; it waits for one stage at a time
  uint32_t within_warps = 0;   // 1 if a warp first adds up its own rows of threads, otherwise 0
  uint32_t sums_bytes = 0;     // bytes of shared memory before the vectors: sums, coefficients and scratch
};
// Each thread copies its vectors in kStages stages, and processes kVectorsAtOnce vectors at a time.
constexpr int kStages = 4, kVectorsAtOnce = 4;
// The most threads of a block, and of all blocks of an SM. It is 512 where the kernel takes more than 64 registers per
// thread: backward, and for columns (NHWC).
MINIDNN_HD constexpr int persistent_threads(bool backward, bool columns) { return backward || columns ? 512 : 1024; }

}  // namespace minidnn
