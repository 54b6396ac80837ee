// SPDX-License-Identifier: Apache-2.0
// Parameters of wgmma_backward.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cuda/attention/mma_params.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

// The tile of a block: kColumns rows of k and v, and `rows` rows of q and d_o at a time. D and Dv of a problem are at
// most `head`. Two warpgroups divide the rows of k and v.
struct AttentionBackwardTile {
  int head, rows;
  int stages;  // tiles of q and d_o in shared memory
  static constexpr int kColumns = 128;
  static constexpr int kItems = 4, kItemBytes = 48;  // what a block knows about its items

  MINIDNN_HD constexpr int own_bytes() const { return 2 * kColumns * head; }  // of a tile of k or v
  MINIDNN_HD constexpr int loop_bytes() const { return 2 * rows * head; }     // of a tile of q or d_o
  MINIDNN_HD constexpr int gradient_bytes() const { return 2 * kColumns * rows; }
  MINIDNN_HD constexpr int sums() const { return rows * head; }  // of a tile of dq
  // Where the parts of shared memory begin.
  MINIDNN_HD constexpr int loop_begin() const { return 2 * own_bytes(); }
  MINIDNN_HD constexpr int gradients_begin() const { return loop_begin() + 2 * stages * loop_bytes(); }
  MINIDNN_HD constexpr int sums_begin() const { return gradients_begin() + 2 * gradient_bytes(); }
  MINIDNN_HD constexpr int row_values_begin() const { return sums_begin() + 4 * sums(); }
  MINIDNN_HD constexpr int barriers_begin() const { return row_values_begin() + 2 * stages * rows * 4; }
  MINIDNN_HD constexpr int barriers() const { return 8 + 4 * stages; }
  MINIDNN_HD constexpr int items_begin() const { return barriers_begin() + 8 * barriers(); }
  MINIDNN_HD constexpr int smem_bytes() const { return items_begin() + kItems * kItemBytes; }
};

struct AttentionWgmmaBackwardParams {
  AttentionScoreParams scores;
  AttentionStrides o, d_o, dq, dk, dv;
  int32_t head_size = 0, value_size = 0;
  FastDivmod q_heads;         // the heads of q
  FastDivmod row_tiles;       // tiles of rows of q of the longest sequence
  int32_t column_tiles = 0;   // tiles of rows of k of the longest sequence
  int32_t items = 0;          // column_tiles * kv_head_batch
  int32_t kv_head_batch = 0;  // the heads of k of all sequences
  int32_t head_group = 1;     // the heads of k whose tiles neighbouring blocks compute
  int32_t delta_lanes = 1;    // the lanes that add up a row of d_o o, a power of two
  int64_t head_tiles = 0;     // tiles of rows of q that a head has in workspace
};

struct AttentionWgmmaBackwardMaps {
  TensorMap q, k, v, d_o;
};

// The workspace. The rows of a sequence begin at a tile of rows of their own.
struct AttentionWgmmaBackwardSums {
  float* lse = nullptr;    // log2(e) lse of each row, or +inf if the row sees nothing
  float* delta = nullptr;  // the sum of d_o o of each row
  // The sums of dq / scale, for each tile of rows: the accumulators of both warpgroups, four of each thread at a time.
  float* dq = nullptr;
  uint32_t* next_item = nullptr;  // the first item that no block has taken
  uint32_t* added = nullptr;      // ordered sums only: how many items have been added to each tile
};

}  // namespace minidnn
