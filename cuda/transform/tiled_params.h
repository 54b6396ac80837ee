// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.tiled, and the shape of a block's tile.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTiledThreads = 256, kTiledOuters = 4;

// y[i...][column][line] = x[i...][line][column]: x is contiguous along columns, y along lines.
struct TiledCopy {
  int64_t lines = 1, columns = 1, x_line = 0, y_column = 0;  // strides in elements
  int64_t x_outer[kTiledOuters]{}, y_outer[kTiledOuters]{};  // strides of the dimensions i..., the innermost first
  FastDivmod outer[kTiledOuters - 1];                        // the sizes of i..., except for the outermost
  FastDivmod line_tiles, column_tiles;
  int64_t lines_first = 0;             // neighbouring blocks copy neighbouring lines, not columns
  int64_t x_bytes = 16, y_bytes = 16;  // bytes that divide all addresses: the width of loads or stores
};

// A block's tile is 128 bytes of columns wide, and at least 128 bytes of lines high.
template <int kItem> struct TiledShape {
  static constexpr int kVector = 16 / kItem;                // elements of 16 bytes
  static constexpr int kStack = kItem < 4 ? 1 : kItem / 2;  // spans of 128 bytes along lines
  static constexpr int kColumns = 128 / kItem, kLines = kColumns * kStack;
};

}  // namespace minidnn
