// SPDX-License-Identifier: Apache-2.0
// The parameters of split_k.cu: the parts of a product whose k was split. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

struct SplitSums {
  const float* parts = nullptr;  // [count, batch, m, 4 * columns]
  int64_t part_stride = 0;       // in groups of four elements
  int64_t count = 0;
  uint32_t places = 0;  // groups of four columns in a part
  FastDivmod columns;   // groups of four columns in a row
  FastDivmod rows;      // m
};

}  // namespace minidnn
