// SPDX-License-Identifier: Apache-2.0
// The parameters of tf32_split.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTf32Dimensions = 5;

// The layout x of a tensor that is read and the layout y in which its parts are written; dimensions from the innermost
// outwards, strides in elements.
struct Tf32Parts {
  uint32_t items = 0;  // vectors, or elements
  FastDivmod size[kTf32Dimensions];
  int64_t x[kTf32Dimensions]{}, y[kTf32Dimensions]{};
  int64_t part = 0;  // stride from one part to the next
  // the part (of 0, 1, 2) that holds the TF32 rounding error: 1 or 2. The others hold the value rounded to TF32
  int64_t small_at = 0;
};

}  // namespace minidnn
