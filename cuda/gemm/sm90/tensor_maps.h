// SPDX-License-Identifier: Apache-2.0
// Converts a GemmTask to what the main loop of sm_90a (sm90/kernel.cu) reads: operands become tensor maps, k becomes
// taps and blocks of k, and views become phases. Host only.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/sm90/sm90_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {

// One operand. It lacks only the address of its data and the box sizes of its tensor map.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // offset of the tensor map's origin in the tensor, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // empty, or the reason why TMA can not load the operand

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct TmaView {
  std::string why;         // empty, or the reason why the task is not supported
  bool exchanged = false;  // whether a and b are exchanged
  // The first view of the task, with digits (dimensions of its indices) large enough for the positions of all views. If
  // index n has taps, its last digit is rounded up.
  GemmView view;
  int64_t n_limit = 0;  // the last digit of index n before it was rounded up; 0 if n has no taps
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // number of blocks of k in each tap
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  std::vector<Sm90Phase> phases;  // sorted by decreasing number of taps, so that the last tiles of a launch are short

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// Converts a task. wgmma can not read TF32 operands that are contiguous along rows. Operand a is then read into
// registers, and operand b is transposed in shared memory. If only b is contiguous along rows, and so is y along n, a
// and b are exchanged. A lane then has the sums of neighbouring rows of a, which are neighbours in y.
TmaView tma_view(const GemmTask&);
GemmOutput output_of(const GemmTask&, const TmaView&);
// The way to store sums in y. It can be GemmStore::columns or GemmStore::phases only if a is read into registers,
// because a lane then has sums of neighbouring rows.
GemmStore store_of(const GemmTask&, const TmaView&);

}  // namespace minidnn
