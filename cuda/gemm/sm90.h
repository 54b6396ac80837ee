// SPDX-License-Identifier: Apache-2.0
// The parameters of the main loop in sm90.cuh, filled in by sm90.cpp. Std-free.
//
// An operand comes through a tensor map, 128 bytes at a time of its contiguous dimension:
//   tile    dimensions (contiguous, tap, tap, other, batch), where rows and k are "contiguous" and "other" in some order
//   pixels  the windows of a convolution, an im2col map
// k runs through taps, and in each through blocks of 128 bytes of channels (or, along_m and along_n, of as many k).
#pragma once
#include "cuda/device/tensor_map.cuh"
#include "cuda/gemm/view.h"

namespace minidnn {

// How an operand is laid out: what is contiguous, and whether a window moves over it.
enum class Sm90Source : int64_t { tile_along_k, tile_along_rows, pixels_along_k, pixels_along_rows };

struct Sm90Operand {
  int32_t batch_step = 0;            // 0: every batch has the same; 1: batches are the map's last dimension
  int32_t channels_of_batch = 0;     // pixels: channels from one group to the next
  int32_t tap_first[2]{}, tap_step[2]{};  // tile: coordinates of the taps, inner one first
  // pixels: the coordinate of position 0 at the map's lower corner, what a position and a tap add
  int32_t corner[3]{}, position_step[3]{}, offset_first[3]{}, offset_step[3]{};
};

// The product of one view.
struct Sm90Phase {
  TensorMap map_a, map_b;
  Sm90Operand a, b;
  GemmOutput y;
  int32_t m_tiles = 0, n_tiles = 0;
  int32_t first_tile = 0;  // of all phases'
  int32_t taps[3]{1, 1, 1};
  int32_t k_blocks = 0;                 // in each tap
  int32_t positions[3]{1, 1, 1};        // digits of the pixels that pixels_* walk
  int32_t window[3]{1, 1, 1};           // pixels_along_rows: digits of the taps in the rows
  int32_t channel_blocks = 0;           // and blocks of channels in each
};

template <int kPhases> struct Sm90Problem {
  Sm90Phase phases[kPhases];
  int32_t phase_count = 0, tiles = 0, batches = 1, splits = 1;
  int32_t group_m = 8;          // tiles of m that are walked together over all tiles of n: they share operands in the L2
  int64_t split_stride = 0;     // of y, in elements: each split has its own
};

}  // namespace minidnn
