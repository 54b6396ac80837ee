// SPDX-License-Identifier: Apache-2.0
// The choice of how cuda.layer_norm.persistent_rows divides rows among threads, blocks and clusters.
#pragma once
#include "cpp/layer_norm/layer_norm.h"
#include "cuda/layer_norm/persistent_rows_params.h"

namespace minidnn::cuda::layer_norm {

struct PersistentRowsTiling {
  RowTiling rows;
  int64_t vector = 1, thread_vectors = 1;
  bool persistent = false;  // whether blocks are persistent: in backward, and for long rows
  // For persistent blocks: rows per iteration, bytes of shared memory per block, and the largest number of blocks on an
  // SM.
  int64_t rows_per_iteration = 1, smem_bytes = 0, blocks_per_sm = 1;
};

// Fills in the tiling. Returns "" if the engine supports the problem, otherwise the reason why not.
std::string tile_persistent_rows(const LayerNormProblem&, const Device&, PersistentRowsTiling&);
// An upper bound of the number of persistent blocks, or of clusters if a row has several blocks. Only the driver knows
// how many run at the same time.
int64_t max_persistent_blocks(const PersistentRowsTiling&, const Device&);

}  // namespace minidnn::cuda::layer_norm
