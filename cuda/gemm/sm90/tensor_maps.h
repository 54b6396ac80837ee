// SPDX-License-Identifier: Apache-2.0
// Converts a GemmTask to the form that the main loop of sm_90a (sm90/kernel.cu) reads. Operands become tensor maps,
// index k becomes taps (elements of the window) and blocks of 128 bytes, and each GemmView becomes an Sm90Phase. Only
// host code includes this file.
#pragma once
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/sm90/sm90_params.h"
#include "cuda/gemm/view/gemm_task.h"
#include "cuda/runtime/tensor_map.h"

namespace minidnn {

// An operand as TMA loads it. Only the address of its data and the box sizes of its tensor map are not set.
struct TmaOperand {
  Sm90Source source{};
  int64_t offset = 0;  // the offset in the tensor at which the tensor map begins, in elements
  cuda::TiledMap tile;
  cuda::Im2colMap pixels;
  Sm90Operand device;
  std::string why;  // empty, or the reason why TMA can not load the operand

  bool windowed() const { return source == Sm90Source::pixels_along_k || source == Sm90Source::pixels_along_rows; }
  bool along_rows() const { return source == Sm90Source::tile_along_rows || source == Sm90Source::pixels_along_rows; }
};

struct TmaView {
  std::string why;         // empty, or the reason why the GemmTask is not supported
  bool exchanged = false;  // whether operands a and b are exchanged
  // The first GemmView of the GemmTask. If the task has several, the digits (dimensions) of the view's indices are
  // large enough for all of them. If index n counts taps, the last digit of index n is rounded up.
  GemmView view;
  // The size of the last digit (dimension) of index n before this size was rounded up. It is 0 if index n does not
  // count taps (elements of the window).
  int64_t n_limit = 0;
  TmaOperand a, b;
  int spatial = 2;
  int64_t k_blocks = 0;  // the number of blocks of k (128 bytes) in each tap (element of the window)
  int32_t positions[3]{1, 1, 1}, window[3]{1, 1, 1};
  int64_t channel_blocks = 0;
  // The phases of backward_data, or a single phase. They are sorted by decreasing number of taps (elements of the
  // window), so that the last tiles of a launch are short.
  std::vector<Sm90Phase> phases;

  int64_t all_blocks() const {
    int64_t count = 0;
    for (const Sm90Phase& p : phases) count += p.blocks;
    return count;
  }
};

// Converts a GemmTask. wgmma can not read TF32 operands from shared memory if they are contiguous along rows. Such an
// operand a is read into registers; such an operand b is transposed in shared memory. If b is contiguous along rows, a
// is not, and y is contiguous along n, then a and b are exchanged. After the exchange, a lane has the sums of
// neighbouring rows of a, which are neighbours in y.
TmaView tma_view(const GemmTask&);
GemmOutput output_of(const GemmTask&, const TmaView&);
// Returns the way to store sums in y. It can be GemmStore::columns or GemmStore::phases only if a is read into
// registers, because each lane then has sums of neighbouring rows.
GemmStore store_of(const GemmTask&, const TmaView&);

}  // namespace minidnn
