// SPDX-License-Identifier: Apache-2.0
// How cpu.matmul.packed divides its work: tiles of rows, panels of columns, blocks of tiles and panels, slices of the
// inner dimension k, and the layout of the workspace.
#pragma once
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace cpu::matmul {

struct PackedTiling {
  // The largest number of tiles (groups of rows) in a block of y.
  static constexpr int64_t kBlockTiles = 32;
  // The number of steps of k that are summed in registers before the sum is added to the sum of the earlier steps. It
  // is a constant, so the rounding of a sum does not depend on the tiling.
  static constexpr int64_t kSegment = 256;

  // Selects the kernel for a product whose y has a single row. `wide` is a kernel for b with contiguous rows. `dots` is
  // a kernel for b with contiguous columns. `no` means that the product uses the kernel for any number of rows.
  enum class Row { no, wide, dots };

  // True if y^T = b^T a^T is computed instead of y = a b. The member p then describes the product b^T a^T. The
  // transposed product is computed if the columns of y are contiguous. The rows of y^T are then contiguous, so sums can
  // be formed directly in y.
  bool transposed;
  MatmulProblem p;
  MatmulSizes s;
  Row row;
  // The numbers of rows and columns that one call of the micro-kernel computes.
  int64_t tile_rows, tile_columns;
  // The number of tiles (groups of rows) and of panels (groups of columns) of one matrix of the batch.
  int64_t tiles, panels;
  // The number of tiles (groups of rows) and of panels (groups of columns) of a block of y.
  int64_t block_tiles, block_panels;
  // `blocks_down` and `blocks_across` are the numbers of blocks of one matrix along its rows and its columns. `blocks`
  // is the number of blocks of all matrices of the batch.
  int64_t blocks_down, blocks_across, blocks;
  // The number of steps of the inner dimension k that are packed and multiplied at a time.
  int64_t slice;
  // True if the operand a (or b) is read without packing.
  bool a_in_place, b_in_place;
  // Offsets in the scratch memory of a thread, in bytes. The scratch memory begins with the packed rows of a.
  size_t b_at, sums_at, scratch_bytes, bytes;

  PackedTiling(const MatmulProblem&, const Device&);

 private:
  void divide(const Device&);
};

}  // namespace cpu::matmul
}  // namespace minidnn
