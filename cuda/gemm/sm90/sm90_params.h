// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90/kernel.cu, which plan.cpp fills in. This file does not use the standard
// library, because kernels include it.
//
// TMA loads an operand through a tensor map, 128 bytes of its contiguous dimension at a time. There are two kinds of
// tensor maps:
//   tile    a tiled map with dimensions (contiguous, tap, tap, other, batch). Either k is "contiguous" and rows are
//           "other", or rows are "contiguous" and k is "other".
//   pixels  an im2col map of the windows of a convolution
//
// A tap is an element of the window. Index k is (tap, channel). The channels of each tap are divided into blocks of k
// of 128 bytes: 64 channels in 16 bits, or 32 in TF32. A 3x3 window of 128 channels in bfloat16, for example, has 18
// blocks of k.
#pragma once
#include "cuda/device/cache.cuh"
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// An operand's contiguous dimension (k or rows) and kind of tensor map (tile or pixels).
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

// An operand. Most fields are for one kind of tensor map only.
struct Sm90Operand {
  CachePolicy policy = CachePolicy::normal;
  // Tiled map: 1 if its last dimension is the batch, 0 if the whole batch uses the same matrix.
  int32_t batch_step = 0;
  // Im2col map: channels per group, if the batch counts groups of a convolution, else 0.
  int32_t channels_of_batch = 0;
  // Tiled map: the steps of its tap coordinates from one tap to the next. Spatial dimension 2 is map dimension 1;
  // spatial dimensions 0 and 1 share map dimension 2.
  int32_t tap_step[3]{};
  // Im2col map: the coordinates at position 0, and their steps from one position to the next.
  int32_t corner[3]{}, position_step[3]{};
  // Im2col map: the steps of the im2col offsets from one tap to the next.
  int32_t offset_step[3]{};
};

// What differs between the phases of strided backward_data (the positions of dx that use the same taps).
struct Sm90Phase {
  GemmOutputBounds bounds;
  int32_t taps[3]{1, 1, 1};
  int32_t blocks = 0;  // 128-byte blocks of k in all taps
  // Added to the channel coordinate. A phase without taps has one block of k, and a k_shift so large that TMA loads
  // zeros.
  int32_t k_shift = 0;
  // tiled map: the coordinates of the first tap
  int32_t a_tap[2]{}, b_tap[2]{};
  int32_t a_offset[3]{}, b_offset[3]{};  // im2col map: the offsets of the first tap
};

// The number of consumer warpgroups for tiles of `rows` rows.
MINIDNN_HD constexpr int sm90_warpgroups(int rows) { return rows == 192 ? 3 : 2; }

constexpr int kSm90Phases = 8;  // phases of backward_data per launch, at most

struct Sm90Problem {
  TensorMap map_a, map_b, map_y;  // map_y: only for GemmStore::boxes
  Sm90Operand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // the stride of splits in the workspace, in elements
  Sm90Phase phases[kSm90Phases];
  // The order of tiles: phases of backward_data (slowest), matrices of the batch, splits of k, tiles of a matrix. The
  // tiles of a matrix are in groups of group_m tiles along m and all tiles along n, which share operands in the L2. If
  // clusters share operand b, the tiles of a cluster count as one.
  int32_t tiles = 0, m_tiles = 0;
  FastDivmod per_matrix, splits, batches;
  FastDivmod per_group, group_m, last_group_m;
  FastDivmod k_blocks;  // divides by the number of 128-byte blocks of k per tap
  // The first k_more splits have k_each + 1 blocks of k, the others k_each.
  int32_t k_each = 0, k_more = 0;
  // The number of blocks of k per tile, or 0 if it differs between tiles.
  int32_t k_of_tile = 0;
  // for im2col maps: divide by the numbers of positions of the window
  FastDivmod positions[3];
  FastDivmod window[3];  // divide by the numbers of taps of the window
  // For im2col maps contiguous along rows: divides by the number of 128-byte blocks of channels per tap.
  FastDivmod channel_blocks;
};

}  // namespace minidnn
