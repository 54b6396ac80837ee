// SPDX-License-Identifier: Apache-2.0
// How cpu.matmul.packed divides its work: tiles of rows, panels of columns, blocks of tiles and panels, slices of k,
// and the layout of the workspace.
#pragma once
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace cpu::matmul {

struct PackedTiling {
  static constexpr int64_t kBlockTiles = 32;  // largest number of tiles (of rows) in a block of y
  // Number of steps of k that are summed in registers before they are added to the sums of earlier steps. It is the
  // same for every tiling, so the rounding of a sum does not depend on the tiling.
  static constexpr int64_t kSegment = 256;

  // How a product with one row is computed. wide: by a kernel for a b with contiguous rows. dots: by a kernel for a b
  // with contiguous columns. no: like any other product.
  enum class Row { no, wide, dots };

  // Whether y^T = b^T a^T is computed instead of y = a b. This is done if the columns of y are contiguous. The rows of
  // y^T are then contiguous, so its sums can be formed in place. p is the exchanged problem in this case.
  bool transposed;
  MatmulProblem p;
  MatmulSizes s;
  Row row;
  int64_t tile_rows, tile_columns;  // rows and columns of a tile of the micro-kernel
  // number of tiles (of rows) and of panels (of columns) of one matrix of the batch
  int64_t tiles, panels;
  int64_t block_tiles, block_panels;  // number of tiles (of rows) and of panels (of columns) of a block of y
  // blocks_down, blocks_across: number of blocks of one matrix in each dimension. blocks: number of blocks of all
  // matrices.
  int64_t blocks_down, blocks_across, blocks;
  // number of steps of k (the inner dimension) that are packed and multiplied at a time
  int64_t slice;
  bool a_in_place, b_in_place;  // whether a and b are read without packing
  // Offsets in the scratch memory of a thread, in bytes. Offset 0 has the packed rows of a.
  size_t b_at, sums_at, scratch_bytes, bytes;

  PackedTiling(const MatmulProblem&, const Device&);

 private:
  void divide(const Device&);
};

}  // namespace cpu::matmul
}  // namespace minidnn
