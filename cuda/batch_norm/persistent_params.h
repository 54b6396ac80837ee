// SPDX-License-Identifier: Apache-2.0
// How cuda.batch_norm.persistent divides a dense batch norm among clusters, blocks and threads, for host code and
// kernels.
#pragma once
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// The division of a batch norm among clusters. Each block of a cluster has one chunk of elements. A chunk is some
// elements of one channel (NCHW), or some rows of a tile of columns (NHWC).
struct PersistentTiling {
  ChannelTiling channels;
  uint32_t statistics = 1;     // the number of channels that a cluster processes
  uint32_t block_vectors = 0;  // the number of vectors of x (in backward, also of dy) in a block
  uint32_t stage_vectors = 0;  // the number of vectors that a thread copies per stage
  uint32_t within_warps = 0;   // 1 if the threads of each warp join their sums before the warps do, else 0
  uint32_t sums_bytes = 0;     // bytes of shared memory for sums, coefficients and scratch
};
// Each thread copies its vectors to shared memory in kStages stages, and processes kVectorsAtOnce vectors at a time.
constexpr int kStages = 4, kVectorsAtOnce = 4;
// Returns the maximum number of threads in a block. All blocks on an SM together have at most this number, too. It is
// 512 for kernels that take more than 64 registers per thread: the backward kernels, and those for columns (NHWC).
MINIDNN_HD constexpr int persistent_threads(bool backward, bool columns) { return backward || columns ? 512 : 1024; }

}  // namespace minidnn
