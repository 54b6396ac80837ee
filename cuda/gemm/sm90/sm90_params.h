// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90/kernel.cu, which plan.cpp fills in. This file does not use the standard
// library, because kernels include it.
//
// TMA loads an operand through a tensor map, 128 bytes of its contiguous dimension at a time. There are two kinds of
// tensor maps:
//   tile    a tiled map with dimensions (contiguous, tap, tap, other, batch). Either k is "contiguous" and rows are
//           "other", or rows are "contiguous" and k is "other".
//   pixels  an im2col map of the windows of a convolution
// Index k consists of taps. The values of k of each tap are divided into blocks of k. A block has 64 values of k for
// 16-bit operands, and 32 for TF32.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The layout of an operand: whether k or the rows are contiguous, and whether TMA loads it through a tiled map (tile)
// or through an im2col map (pixels).
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

// An operand. Comments that begin with "For a tiled map" or "For an im2col map" describe fields that are used only if
// the operand has such a tensor map.
struct Sm90Operand {
  CachePolicy policy = CachePolicy::normal;
  // For a tiled map: 1 if the last dimension of the map is the batch, 0 if all products of the batch use the same
  // matrix.
  int32_t batch_step = 0;
  // For an im2col map: the number of channels in a group of the convolution; a group is an element of the batch. It is
  // 0 if the batch has one element.
  int32_t channels_of_batch = 0;
  // For a tiled map: tap_step[j] tells by how much a coordinate changes from one tap (element of the window) to the
  // next in spatial dimension j. The coordinate is that of map dimension 1 for j = 2, and that of map dimension 2 for j
  // = 0 and j = 1.
  int32_t tap_step[3]{};
  // For an im2col map: the coordinate at position 0 (the first place of the window), and the step of this coordinate
  // from one position to the next.
  int32_t corner[3]{}, position_step[3]{};
  // For an im2col map: the step of the im2col offset from one tap (element of the window) to the next.
  int32_t offset_step[3]{};
};

// The parameters that differ between the phases of strided backward_data (a phase is the positions of dx that use the
// same taps): the taps, the coordinates of the first tap, and the bounds of the output.
struct Sm90Phase {
  GemmOutputBounds bounds;
  int32_t taps[3]{1, 1, 1};
  int32_t blocks = 0;  // the number of blocks of k (128 bytes each) in all taps together
  // k_shift is added to the channel coordinate. A phase of backward_data that uses no taps has one block of k, and a
  // k_shift that is so large that TMA loads zeros. In all other phases, k_shift is 0.
  int32_t k_shift = 0;
  // For a tiled map: the coordinates of the first tap (element of the window) that is used.
  int32_t a_tap[2]{}, b_tap[2]{};
  int32_t a_offset[3]{}, b_offset[3]{};  // for an im2col map: the offset of the first tap that is used
};

// The number of consumer warpgroups that multiply a tile of `rows` rows.
MINIDNN_HD constexpr int sm90_warpgroups(int rows) { return rows == 192 ? 3 : 2; }

constexpr int kSm90Phases = 8;  // the largest number of phases of backward_data in one launch

struct Sm90Problem {
  TensorMap map_a, map_b;
  Sm90Operand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // the distance between the sums of neighbouring splits of k, in elements
  Sm90Phase phases[kSm90Phases];
  // The index of a tile counts phases of backward_data (slowest), matrices of the batch, splits of k, and the tiles of
  // a matrix (fastest). The tiles of a matrix are in groups. A group has group_m tiles along m and all tiles along n.
  // The tiles of a group share operands in the L2. m_tiles is the number of tiles along m. If clusters share operand b,
  // `tiles` and `m_tiles` count all tiles of a cluster as one tile.
  int32_t tiles = 0, m_tiles = 0;
  FastDivmod per_matrix, splits, batches;
  FastDivmod per_group, group_m, last_group_m;
  FastDivmod k_blocks;  // for divisions by the number of blocks of k (128 bytes) in each tap (element of the window)
  // The first k_more splits of k add up k_each + 1 blocks of k each (128 bytes). All other splits add up k_each blocks.
  int32_t k_each = 0, k_more = 0;
  // The number of blocks of k (128 bytes each) that a tile adds up. It is 0 if it differs between tiles.
  int32_t k_of_tile = 0;
  // For divisions by the number of positions of the window in each dimension; only for an im2col map.
  FastDivmod positions[3];
  FastDivmod window[3];  // for divisions by the number of taps in each dimension of the window
  // For an im2col map of an operand that is contiguous along its rows: for divisions by the number of 128-byte blocks
  // of channels in each tap (element of the window).
  FastDivmod channel_blocks;
};

}  // namespace minidnn
