// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.tiled, and the shape of the tile that a block copies.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kTiledThreads = 256, kTiledOuters = 4;

// A transpose: y[i...][column][line] = x[i...][line][column]. x is contiguous along columns, and y is contiguous along
// lines. i... are any other dimensions.
struct TiledCopy {
  // The numbers of lines and of columns; the stride of x along lines and the stride of y along columns, in elements.
  int64_t lines = 1, columns = 1, x_line = 0, y_column = 0;
  // The strides of x and y along all dimensions except lines and columns, in elements, beginning with the innermost.
  int64_t x_outer[kTiledOuters]{}, y_outer[kTiledOuters]{};
  // The sizes of all dimensions except lines, columns and the outermost dimension.
  FastDivmod outer[kTiledOuters - 1];
  FastDivmod line_tiles, column_tiles;
  // 1 if adjacent blocks copy tiles that are adjacent along lines; 0 if along columns
  int64_t lines_first = 0;
  // The sizes in bytes of the words that are loaded from x and stored to y. They divide all addresses.
  int64_t x_bytes = 16, y_bytes = 16;
};

// The tile of a block covers 128 bytes along the columns (contiguous in x), and at least 128 bytes along the lines
// (contiguous in y).
template <int kItem> struct TiledShape {
  static constexpr int kVector = 16 / kItem;  // the number of elements of a 16-byte vector
  // The extent of the tile along the lines (contiguous in y), in multiples of 128 bytes.
  static constexpr int kStack = kItem < 4 ? 1 : kItem / 2;
  static constexpr int kColumns = 128 / kItem, kLines = kColumns * kStack;
};

}  // namespace minidnn
