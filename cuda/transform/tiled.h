// SPDX-License-Identifier: Apache-2.0
// The parameters of tiled.cu. Std-free.
#pragma once
#include "cpp/core/divisor.h"

namespace minidnn {

// y[i][j][column][line] = x[i][j][line][column]: x is contiguous along columns, y along lines.
struct TiledCopy {
  int64_t lines = 1, columns = 1, x_line = 0, y_column = 0;  // strides in elements
  int64_t x_outer[2]{}, y_outer[2]{};                        // of i and j
  int64_t outer = 1;                                         // how many i and j there are together
  Divisor inner;                                             // how many j
  int64_t pairs = 0;                                         // whether sizes and strides but those of 1 are even
};

}  // namespace minidnn
