// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.matmul.packed: tiles of rows, panels of columns, blocks of both, slices of k, and the layout of the
// workspace.
#pragma once
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace cpu::matmul {

struct PackedTiling {
  static constexpr int64_t kBlockTiles = 32;  // the most tiles in a block
  // The steps of k that are summed in registers and then added to the sums of the steps before. The number is the same
  // for every tiling, so a sum does not depend on the tiling.
  static constexpr int64_t kSegment = 256;

  // How a product with one row is computed. wide: b has contiguous rows; dots: b has contiguous columns; no: as other
  // products.
  enum class Row { no, wide, dots };

  // The problem as it is computed. If the columns of y are contiguous, as in planes, y^T = b^T a^T is computed instead:
  // the rows of y^T are contiguous, so sums can be formed in y itself.
  bool transposed;
  MatmulProblem p;
  MatmulSizes s;
  Row row;
  int64_t tile_rows, tile_columns;             // the shape of a tile of the micro-kernel
  int64_t tiles, panels;                       // number of tiles of rows and of panels of columns of one matrix
  int64_t block_tiles, block_panels;           // tiles and panels of a block
  int64_t blocks_down, blocks_across, blocks;  // blocks of one matrix along each dimension, and blocks of all matrices
  int64_t slice;                               // steps of k of a slice
  bool a_in_place, b_in_place;                 // whether an operand is read without packing
  // Offsets in the scratch of a thread, in bytes. Offset 0 has the packed rows of a.
  size_t b_at, sums_at, scratch_bytes, bytes;

  PackedTiling(const MatmulProblem&, const Device&);

 private:
  void divide(const Device&);
};

}  // namespace cpu::matmul
}  // namespace minidnn
