// SPDX-License-Identifier: Apache-2.0
// Parameters of wgmma_backward.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cuda/attention/mma_params.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

// The tile of a block: columns() rows of k and v, and `rows` rows of q and d_o at a time. D of a problem is at most
// `head`, and Dv at most `value`. Consumer warpgroups divide the rows of k and v of narrow tiles, and the products of
// wide tiles.
struct AttentionBackwardTile {
  int head, rows;
  int stages;  // tiles of q and d_o in shared memory
  int value = head;
  static constexpr int kItems = 4, kItemBytes = 48;  // what a block knows about its items

  MINIDNN_HD constexpr bool is_wide() const { return head > 128; }
  MINIDNN_HD constexpr int columns() const { return is_wide() ? 64 : 128; }
  MINIDNN_HD constexpr int threads() const { return is_wide() ? 512 : 384; }
  // The registers of a thread of the producer, of one with sums of dk or dv, and of one that computes dq of wide tiles.
  MINIDNN_HD constexpr int producer_registers() const { return is_wide() ? 32 : 24; }
  MINIDNN_HD constexpr int own_registers() const { return is_wide() ? 208 : 240; }
  MINIDNN_HD constexpr int dq_registers() const { return 64; }
  MINIDNN_HD constexpr int k_bytes() const { return 2 * columns() * head; }
  MINIDNN_HD constexpr int v_bytes() const { return 2 * columns() * value; }
  MINIDNN_HD constexpr int q_bytes() const { return 2 * rows * head; }
  MINIDNN_HD constexpr int do_bytes() const { return 2 * rows * value; }
  MINIDNN_HD constexpr int gradient_bytes() const { return 2 * columns() * rows; }
  MINIDNN_HD constexpr int sums() const { return rows * head; }  // of a tile of dq
  // Narrow tiles: a tile of dq. Wide tiles: the exponentials of a tile.
  MINIDNN_HD constexpr int float_bytes() const { return 4 * rows * (is_wide() ? columns() : head); }
  // Where the parts of shared memory begin.
  MINIDNN_HD constexpr int q_begin() const { return k_bytes() + v_bytes(); }
  MINIDNN_HD constexpr int do_begin() const { return q_begin() + stages * q_bytes(); }
  MINIDNN_HD constexpr int gradients_begin() const { return do_begin() + stages * do_bytes(); }
  MINIDNN_HD constexpr int floats_begin() const { return gradients_begin() + 2 * gradient_bytes(); }
  MINIDNN_HD constexpr int row_values_begin() const { return floats_begin() + float_bytes(); }
  MINIDNN_HD constexpr int barriers_begin() const { return row_values_begin() + 2 * stages * rows * 4; }
  MINIDNN_HD constexpr int barriers() const { return 17 + 4 * stages; }
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
  // The sums of dq / scale, for each tile of rows: the accumulators of a warpgroup for 64 rows and 64 columns after the
  // other, four of each thread at a time.
  float* dq = nullptr;
  uint32_t* next_item = nullptr;  // the first item that no block has taken
  uint32_t* added = nullptr;      // ordered sums only: how many items have been added to each tile
};

}  // namespace minidnn
