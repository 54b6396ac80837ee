// SPDX-License-Identifier: Apache-2.0
// The parts of a product whose k was split, as split_k.cu adds them. Std-free.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

struct SplitSums {
  const float* parts = nullptr;  // [count, batch, m, columns]
  int64_t columns = 0;           // n rounded up to a multiple of 4
  int64_t part_stride = 0;       // elements
  int64_t count = 0;
};

}  // namespace minidnn
