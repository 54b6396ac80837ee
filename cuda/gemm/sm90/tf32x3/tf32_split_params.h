// SPDX-License-Identifier: Apache-2.0
// The parameters of tf32_split.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTf32Dimensions = 5;

// The strides of the operand that is read (x) and of its three terms that are written (y). Dimensions are in order from
// the innermost to the outermost; strides are in elements.
struct Tf32SplitParams {
  uint32_t items = 0;  // number of vectors of the operand
  FastDivmod size[kTf32Dimensions];
  int64_t x[kTf32Dimensions]{}, y[kTf32Dimensions]{};
  int64_t term_stride = 0;
  // The index of the term (1 or 2) that holds the rounding errors. The other two terms hold the numbers rounded to
  // TF32.
  int64_t rest_term = 0;
};

}  // namespace minidnn
