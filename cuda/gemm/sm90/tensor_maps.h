// SPDX-License-Identifier: Apache-2.0
// Lowers a task to the main loop of sm_90a (sm90/kernel.cu): operands become tensor maps, k becomes taps of blocks,
// views become phases. Host only.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/sm90/sm90_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {

// One operand, complete but for its address and the size of its boxes.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // offset of the map's origin in the tensor, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // empty, or why TMA can not load it

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct TmaView {
  std::string why;         // empty, or why the task is not supported
  bool exchanged = false;  // whether a and b are
  // The first view, with digits large enough for the positions of all views. n is rounded up if taps are in it.
  GemmView view;
  int64_t n_limit = 0;  // the last digit of n before it was rounded up; 0 if taps are not in n
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // blocks of k in each tap
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  std::vector<Sm90Phase> phases;  // sorted by decreasing number of taps: the last tiles are then short

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// TF32 operands that are contiguous along rows: an a is read into registers, a b is transposed in shared memory. If
// only b is such an operand and the columns of y are neighbours, a and b are exchanged: a lane then has the sums of
// neighbouring rows of a.
TmaView tma_view(const GemmTask&);
GemmOutput output_of(const GemmTask&, const TmaView&);
// How sums are stored in y. `columns` (or `phases`) if a is read into registers and a lane therefore has neighbouring
// rows.
GemmStore store_of(const GemmTask&, const TmaView&);

}  // namespace minidnn
