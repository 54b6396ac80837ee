// SPDX-License-Identifier: Apache-2.0
// How cuda.batch_norm.persistent divides a dense batch norm among clusters, blocks and threads, for host code and
// kernels.
#pragma once
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// The division of a batch norm among clusters. Each block of a cluster has a part of one channel (NCHW), or some rows
// of a few adjacent channels (NHWC).
struct PersistentTiling {
  ChannelTiling channels;
  uint32_t statistics = 1;     // the number of channels that a cluster processes
  uint32_t block_vectors = 0;  // the number of vectors of x (in backward, also of dy) that a block processes
  uint32_t stage_vectors = 0;  // the number of vectors that a thread copies in each of the kStages stages
  // 1 if sums are added up within each warp first, and then among the warps of the block
  uint32_t within_warps = 0;
  uint32_t sums_bytes = 0;  // bytes of shared memory for sums, coefficients and scratch
};
// Each thread copies its vectors to shared memory in kStages stages, and processes kVectorsAtOnce vectors at a time.
constexpr int kStages = 4, kVectorsAtOnce = 4;
// Returns the maximum number of threads in a block, and also on an SM. Kernels for backward and for NHWC take more than
// 64 registers per thread, so it is 512 for them.
MINIDNN_HD constexpr int persistent_threads(bool backward, bool columns) { return backward || columns ? 512 : 1024; }

}  // namespace minidnn
