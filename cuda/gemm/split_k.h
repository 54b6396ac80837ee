// SPDX-License-Identifier: Apache-2.0
// The parts of a product whose k was split, as split_k.cu adds them. Std-free.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

struct SplitSums {
  const float* parts = nullptr;  // [count, batch, m, 4 * columns]
  int64_t part_stride = 0;       // in fours of elements
  int64_t count = 0;
  uint32_t places = 0;  // fours of a part
  FastDivmod columns;   // fours of a row
  FastDivmod rows;      // m
};

}  // namespace minidnn
