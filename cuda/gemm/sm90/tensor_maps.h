// SPDX-License-Identifier: Apache-2.0
// Converts a GemmTask for the main loop of sm_90a (sm90/kernel.cu): operands become tensor maps, k becomes (tap,
// 128-byte block of channels), and each GemmView becomes an Sm90Phase. Only host code includes this file.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/sm90/sm90_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {

// An operand as TMA loads it, without the address and the box sizes of its tensor map.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // the offset of the tensor map in the tensor, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // empty, or why TMA cannot load the operand

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct TmaView {
  std::string why;         // empty, or why the GemmTask is not supported
  bool exchanged = false;  // whether operands a and b are exchanged
  // The first GemmView of the task, with dimensions large enough for all views. If n counts taps, its last dimension is
  // rounded up, and n_limit is the exact size.
  GemmView view;
  int64_t n_limit = 0;
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // 128-byte blocks of k per tap
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  // Phases of backward_data with many taps come first, so that the last tiles of a launch are short.
  std::vector<Sm90Phase> phases;

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// Converts a GemmTask. wgmma cannot read TF32 operands that are contiguous along rows from shared memory: such an a is
// read into registers, such a b is transposed in shared memory. If only b is contiguous along rows, and y along n, a
// and b are exchanged, so that each lane has sums that are adjacent in y.
TmaView tma_view(const GemmTask&);
GemmOutput output_of(const GemmTask&, const TmaView&);
// GemmStore::columns and phases need an a that is read into registers, which gives each lane sums of adjacent rows.
GemmStore store_of(const GemmTask&, const TmaView&);

}  // namespace minidnn
