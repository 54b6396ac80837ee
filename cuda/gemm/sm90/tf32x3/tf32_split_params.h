// SPDX-License-Identifier: Apache-2.0
// The parameters of tf32_split.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTf32Dimensions = 5;

// The layout x of a tensor that is read, and the layout y of its three terms that are written. Dimensions are listed
// from the innermost outwards; strides are in elements.
struct Tf32SplitParams {
  uint32_t items = 0;  // the number of vectors that are read
  FastDivmod size[kTf32Dimensions];
  int64_t x[kTf32Dimensions]{}, y[kTf32Dimensions]{};
  int64_t term_stride = 0;
  // The term (1 or 2) that holds the TF32 rounding error. The others hold the value rounded to TF32.
  int64_t rest_term = 0;
};

}  // namespace minidnn
