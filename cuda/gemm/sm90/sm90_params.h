// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90/kernel.cu, filled in by plan.cpp. Std-free.
//
// TMA loads an operand through a tensor map, 128 bytes of its contiguous dimension at a time:
//   tile    a tiled map with dimensions (contiguous, tap, tap, other, batch); "contiguous" and "other" are rows and k,
//           in either order
//   pixels  an im2col map of the windows of a convolution
// k counts taps, and in each tap blocks of 128 bytes of channels. If the operand is contiguous along its rows, a block
// has as many k.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The layout of an operand: which dimension is contiguous, and whether a window moves over it.
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

// Fields whose comment begins with tile: or pixels: are used for operands of that kind only.
struct Sm90Operand {
  CachePolicy policy = CachePolicy::normal;
  int32_t batch_step = 0;  // tile: 1 if batches are the map's last dimension, 0 if all batches read the same matrix
  int32_t channels_of_batch = 0;  // pixels: the number of channels from one group to the next
  // tile: coordinate step of each tap digit; digit 2 is the map's dimension 1, digits 0 and 1 are its dimension 2
  int32_t tap_step[3]{};
  int32_t corner[3]{}, position_step[3]{};  // pixels: the coordinate of position 0, and its step for each position
  int32_t offset_step[3]{};                 // pixels: the step of the im2col offset from one tap to the next
};

// What differs between the phases of a problem: the taps, the first tap's coordinates, and the output.
struct Sm90Phase {
  GemmOutputBounds bounds;
  int32_t taps[3]{1, 1, 1};
  int32_t blocks = 0;  // blocks of k, over all taps
  // Added to channels. A phase without taps has one block of k; k_shift moves it out of bounds, where TMA loads zeros.
  int32_t k_shift = 0;
  int32_t a_tap[2]{}, b_tap[2]{};        // tile: the first tap's coordinates
  int32_t a_offset[3]{}, b_offset[3]{};  // pixels: the first tap's offset
};

// The number of warpgroups that multiply a tile of `rows` rows.
MINIDNN_HD constexpr int sm90_warpgroups(int rows) { return rows == 192 ? 3 : 2; }

constexpr int kSm90Phases = 8;  // most phases in one launch

struct Sm90Problem {
  TensorMap map_a, map_b;
  Sm90Operand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // elements between the outputs of two splits
  Sm90Phase phases[kSm90Phases];
  // A tile index counts phases (slowest), batches, splits and the tiles of a matrix. Within a matrix, each group of
  // group_m tiles of m traverses all tiles of n, because these tiles share operands in the L2. m_tiles counts clusters.
  int32_t tiles = 0, m_tiles = 0;
  FastDivmod per_matrix, splits, batches;
  FastDivmod per_group, group_m, last_group_m;
  FastDivmod k_blocks;             // blocks of k in each tap
  int32_t k_each = 0, k_more = 0;  // blocks of k of each split; the first k_more splits have one more
  int32_t k_of_tile = 0;           // blocks of k of a tile if all tiles have the same number, else 0
  FastDivmod positions[3];         // the number of pixels along each dimension that pixels_* traverse
  FastDivmod window[3];            // pixels_along_rows: digits of the taps in the rows
  FastDivmod channel_blocks;       // pixels_along_rows: blocks of 128 bytes of channels in each tap
};

}  // namespace minidnn
