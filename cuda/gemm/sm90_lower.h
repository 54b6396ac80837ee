// SPDX-License-Identifier: Apache-2.0
// A task in the terms of the main loop of sm_90a (sm90.cuh): operands as tensor maps, k as taps of blocks, phases. Host
// only.
#pragma once
#include "cuda/gemm/sm90.h"
#include "cuda/gemm/task.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {

// One operand, ready but for its address and the size of its boxes.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // of the map's origin in the tensor, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // why TMA can not bring it

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct Lowering {
  std::string why;         // why it can not be
  bool exchanged = false;  // a and b
  GemmView view;           // the first, with room for the positions of all, and its n rounded up where taps lie in it
  int64_t n_limit = 0;     // where it was
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // in each tap
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  std::vector<Sm90Phase> phases;  // those with most taps first, so that the last tiles of all are short

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// TF32 that is contiguous along its rows is read into registers, as a, or turned on the way, as b: b alone becomes a,
// where columns of y are neighbours, since the sums of a's rows then are a lane's.
Lowering lowered(const GemmTask&);
GemmOutput output_of(const GemmTask&, const Lowering&);
// How sums go to y: by columns where lanes have neighbouring rows of an a in registers.
GemmStore store_of(const GemmTask&, const Lowering&);

}  // namespace minidnn
