// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.tiled, and the shape of the tile that a block copies.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTiledThreads = 256, kTiledOuters = 4;

// y[i...][column][line] = x[i...][line][column], where x is contiguous along columns, and y along lines.
struct TiledCopy {
  int64_t lines = 1, columns = 1, x_line = 0, y_column = 0;  // sizes; strides of x and y in elements
  int64_t x_outer[kTiledOuters]{}, y_outer[kTiledOuters]{};  // strides of the dimensions i..., from the innermost
  FastDivmod outer[kTiledOuters - 1];                        // sizes of the dimensions i..., except the outermost
  FastDivmod line_tiles, column_tiles;
  // 1 if neighbouring blocks copy tiles that are neighbours along the lines, 0 if along the columns.
  int64_t lines_first = 0;
  int64_t x_bytes = 16, y_bytes = 16;  // bytes of a load from x and of a store to y; they divide all addresses
};

// The tile of a block is 128 bytes wide along the columns, and at least 128 bytes high along the lines.
template <int kItem> struct TiledShape {
  static constexpr int kVector = 16 / kItem;                // elements of a 16-byte vector
  static constexpr int kStack = kItem < 4 ? 1 : kItem / 2;  // height of the tile in units of 128 bytes
  static constexpr int kColumns = 128 / kItem, kLines = kColumns * kStack;
};

}  // namespace minidnn
