// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90/kernel.cu, which plan.cpp fills in. Std-free.
//
// TMA loads an operand through a tensor map, 128 bytes of its contiguous dimension at a time:
//   tile    a tiled map with dimensions (contiguous, tap, tap, other, batch). Either k is "contiguous" and rows are
//           "other", or the reverse.
//   pixels  an im2col map of the windows of a convolution
// k consists of taps, and each tap of blocks of k: 128 bytes of channels. If the operand is contiguous along its rows,
// a block has the same number of k.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The layout of an operand: which dimension is contiguous, and whether a window moves over it.
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

// An operand. Comments that begin with "tile:" or "pixels:" describe fields that only this kind of operand uses.
struct Sm90Operand {
  CachePolicy policy = CachePolicy::normal;
  // tile: 1 if the last dimension of the map is the batch, 0 if all products of the batch use the same matrix
  int32_t batch_step = 0;
  // pixels: number of channels in a group, which is an element of the batch; 0 if the batch has one element
  int32_t channels_of_batch = 0;
  // tile: the step of a coordinate for each digit (dimension) of the tap. Digit 2 is dimension 1 of the map, digits 0
  // and 1 are its dimension 2.
  int32_t tap_step[3]{};
  // pixels: coordinate of position 0, and its step from one position to the next
  int32_t corner[3]{}, position_step[3]{};
  int32_t offset_step[3]{};  // pixels: step of the im2col offset from one tap to the next
};

// The parameters that differ between the phases of a problem: the taps, the coordinates of the first tap, and the
// bounds of the output.
struct Sm90Phase {
  GemmOutputBounds bounds;
  int32_t taps[3]{1, 1, 1};
  int32_t blocks = 0;  // number of blocks of k in all taps
  // Added to the channel coordinate. A phase without taps has one block of k; its k_shift is so large that TMA loads
  // zeros. Other phases have 0.
  int32_t k_shift = 0;
  int32_t a_tap[2]{}, b_tap[2]{};        // tile: coordinates of the first tap in the map
  int32_t a_offset[3]{}, b_offset[3]{};  // pixels: im2col offset of the first tap
};

// The number of consumer warpgroups that multiply a tile of `rows` rows.
MINIDNN_HD constexpr int sm90_warpgroups(int rows) { return rows == 192 ? 3 : 2; }

constexpr int kSm90Phases = 8;  // largest number of phases in one launch

struct Sm90Problem {
  TensorMap map_a, map_b;
  Sm90Operand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // distance between the outputs of neighbouring splits, in elements
  Sm90Phase phases[kSm90Phases];
  // The index of a tile counts phases (slowest), batches, splits and the tiles of a matrix. Within a matrix, tiles are
  // in groups of group_m tiles along m by all tiles along n; the tiles of a group share operands in the L2. m_tiles is
  // the number of tiles along m; a cluster that shares b counts as one tile.
  int32_t tiles = 0, m_tiles = 0;
  FastDivmod per_matrix, splits, batches;
  FastDivmod per_group, group_m, last_group_m;
  FastDivmod k_blocks;             // divisor: number of blocks of k in each tap
  int32_t k_each = 0, k_more = 0;  // each split adds up k_each blocks of k; the first k_more splits add up one more
  int32_t k_of_tile = 0;           // number of blocks of k that a tile adds up if it is the same for all tiles, else 0
  FastDivmod positions[3];         // pixels: divisors, the number of positions in each dimension
  FastDivmod window[3];            // pixels_along_rows: divisors, the number of taps in each dimension
  FastDivmod channel_blocks;  // pixels_along_rows: divisor, the number of blocks of 128 bytes of channels in each tap
};

}  // namespace minidnn
