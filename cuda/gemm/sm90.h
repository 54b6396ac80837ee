// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90.cuh, filled in by sm90.cpp. Std-free.
//
// An operand comes through a tensor map, 128 bytes at a time of its contiguous dimension:
//   tile    dimensions (contiguous, tap, tap, other, batch), where rows and k are "contiguous" and "other" in some order
//   pixels  the windows of a convolution, an im2col map
// k runs through taps, and in each through blocks of 128 bytes of channels (or of as many k, along rows).
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/view.h"

namespace minidnn {

// How an operand is laid out: what is contiguous, and whether a window moves over it.
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

struct Sm90Operand {
  CachePolicy policy = CachePolicy::normal;
  int32_t batch_step = 0;  // tile: 0 where every batch has the same, 1 where batches are the map's last dimension
  int32_t channels_of_batch = 0;            // pixels: channels from one group to the next
  int32_t tap_step[3]{};                    // tile: of each digit, last in the map's dimension 1, the others in 2
  int32_t corner[3]{}, position_step[3]{};  // pixels: the coordinate of position 0, and what a position adds
  int32_t offset_step[3]{};                 // and what a tap adds
};

// What differs between the views of one problem: the taps, where they begin, and what is written.
struct Sm90Phase {
  GemmPart part;
  int32_t taps[3]{1, 1, 1};
  int32_t blocks = 0;   // of k, over all taps
  int32_t k_shift = 0;  // added to channels; a phase without taps has one block of k, out of every bound: zeros
  int32_t a_tap[2]{}, b_tap[2]{};        // tile: the first tap's coordinates
  int32_t a_offset[3]{}, b_offset[3]{};  // pixels: the first tap's offset
};

// That multiply, of a tile of so many rows.
MINIDNN_HD constexpr int sm90_warpgroups(int rows) { return rows == 192 ? 3 : 2; }

constexpr int kSm90Phases = 8;  // of one launch

struct Sm90Problem {
  TensorMap map_a, map_b;
  Sm90Operand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // of y, in elements: each split has its own
  Sm90Phase phases[kSm90Phases];
  // Tiles are counted by phase, batch, split and within a matrix; there, group_m tiles of m are walked together over
  // all tiles of n, since they share operands in the L2. m_tiles counts clusters.
  int32_t tiles = 0, m_tiles = 0;
  FastDivmod per_matrix, splits, batches;
  FastDivmod per_group, group_m, last_group_m;
  FastDivmod k_blocks;             // in each tap
  int32_t k_each = 0, k_more = 0;  // blocks of k of each split, and how many splits have one more
  int32_t k_of_tile = 0;           // blocks of k of every tile, 0 where they differ
  FastDivmod positions[3];         // digits of the pixels that pixels_* walk
  FastDivmod window[3];            // pixels_along_rows: digits of the taps in the rows
  FastDivmod channel_blocks;       // and blocks of 64 channels in each
};

}  // namespace minidnn
