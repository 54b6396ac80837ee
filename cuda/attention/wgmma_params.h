// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernel of cuda.attention.wgmma. This file does not use the standard library, because kernels include
// it.
#pragma once
#include "cuda/attention/mma_params.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn {

// The tile of a block. D and Dv of a problem are at most `head` and `value`. In shared memory, a tile of q, k or v has a
// box for each 64 elements of a head. A row of a box has 128 bytes.
struct WgmmaTile {
  int head, value, columns;
  int warpgroups;  // that multiply, each with 64 rows
  int q_stages;    // tiles of q in shared memory: 1 or 2
  int stages;      // tiles of k, and of v, in shared memory
  bool turns;      // whether the warpgroups start their products in turns, so that the softmax of one overlaps them
  int options;     // that scores may have (ScoreOption); 0: scores are scale q k^T with a scale above 0

  MINIDNN_HD constexpr int rows() const { return 64 * warpgroups; }
  MINIDNN_HD constexpr int threads() const { return 128 * (1 + warpgroups); }
  MINIDNN_HD constexpr int k_boxes() const { return (head + 63) / 64; }
  MINIDNN_HD constexpr int v_boxes() const { return (value + 63) / 64; }
  MINIDNN_HD constexpr int q_bytes() const { return k_boxes() * rows() * 128; }
  MINIDNN_HD constexpr int k_bytes() const { return k_boxes() * columns * 128; }
  MINIDNN_HD constexpr int v_bytes() const { return v_boxes() * columns * 128; }
  // Boxes begin at multiples of 1024 bytes.
  MINIDNN_HD constexpr int smem_bytes() const { return 1024 + q_stages * q_bytes() + stages * (k_bytes() + v_bytes()); }
};

// The order of tiles: heads of all sequences (slowest), tiles of rows from the last to the first. So blocks that run at the
// same time read the same k and v. If has_pairs is set, a block computes tiles of rows in pairs, the n-th last and the
// n-th first of a head. With a causal mask, all pairs take the same time. If the number of tiles is odd, the last pair of
// a head is one tile.
struct AttentionWgmmaParams {
  TensorMap q, k, v;
  AttentionScoreParams scores;
  AttentionStrides o;
  int32_t value_size = 0;
  int32_t blocks = 0;     // tiles of rows of a head
  int32_t has_pairs = 0;  // 1 or 0
  int32_t units = 0;      // tiles or pairs of all heads
  FastDivmod head_units;  // tiles or pairs of a head
  FastDivmod heads;
};

}  // namespace minidnn
