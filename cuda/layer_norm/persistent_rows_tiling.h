// SPDX-License-Identifier: Apache-2.0
// How cuda.layer_norm.persistent_rows divides rows among threads, blocks and clusters.
#pragma once
#include "cpp/layer_norm/layer_norm.h"
#include "cuda/layer_norm/persistent_rows_params.h"

namespace minidnn::cuda::layer_norm {

struct PersistentRowsTiling {
  RowTiling rows;
  int64_t vector = 1, thread_vectors = 1;
  bool persistent = false;  // persistent blocks: backward, and long rows
  // Persistent blocks: rows per iteration; shared memory of a block; blocks of an SM at most.
  int64_t rows_per_iteration = 1, smem_bytes = 0, blocks_per_sm = 1;
};

// Fills in the tiling. Returns "", or why the engine does not take the problem.
std::string tile_persistent_rows(const LayerNormProblem&, const Device&, PersistentRowsTiling&);
// An upper bound of the number of persistent blocks (or clusters). Only the driver knows how many run at the same time.
int64_t max_persistent_blocks(const PersistentRowsTiling&, const Device&);

}  // namespace minidnn::cuda::layer_norm
