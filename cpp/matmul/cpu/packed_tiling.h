// SPDX-License-Identifier: Apache-2.0
// How cpu.matmul.packed divides its work. A tile is as many rows, and a panel as many columns, as one call of the
// micro-kernel computes. A block is some tiles times some panels. The inner dimension k is divided into slices, such as
// 512 steps. The file also defines the layout of the workspace.
#pragma once
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace cpu::matmul {

struct PackedTiling {
  // The largest number of tiles in a block.
  static constexpr int64_t kBlockTiles = 32;
  // The number of steps of k that are summed in registers. It is constant, so the rounding of a sum does not depend on
  // the tiling.
  static constexpr int64_t kSegment = 256;

  // The kernel for a product with a single row: `wide` if rows of b are contiguous, `dots` if columns of b are. `no`
  // means that there are several rows.
  enum class Row { no, wide, dots };

  // True if y^T = b^T a^T is computed, because the columns of y are contiguous. `p` then describes that product.
  bool transposed;
  MatmulProblem p;
  MatmulSizes s;
  Row row;
  // The numbers of rows and columns that one call of the micro-kernel computes.
  int64_t tile_rows, tile_columns;
  // The numbers of tiles and of panels of one matrix of the batch.
  int64_t tiles, panels;
  // The numbers of tiles and of panels of a block.
  int64_t block_tiles, block_panels;
  // The numbers of blocks along the rows and along the columns of one matrix, and of all blocks of the batch.
  int64_t blocks_down, blocks_across, blocks;
  // The number of steps of the inner dimension k that are packed and multiplied at a time.
  int64_t slice;
  // True if the operands are multiplied as pairs of bfloat16, which are half as many steps (GemmKernels::pairs).
  bool pairs;
  // True if pairs are multiplied by AMX (bf16_products.h). A tile then has kBf16Lines rows.
  bool amx;
  // True if the operand a (or b) is read without packing.
  bool a_in_place, b_in_place;
  // Byte offsets in the scratch memory of a thread, which begins with the packed rows of a.
  size_t b_at, sums_at, scratch_bytes, bytes;

  PackedTiling(const MatmulProblem&, const Device&);

 private:
  void divide(const Device&);
};

}  // namespace cpu::matmul
}  // namespace minidnn
