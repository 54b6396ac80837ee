// SPDX-License-Identifier: Apache-2.0
// The parameters of tf32_split.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kTf32Dimensions = 5;

// The strides of the operand (x) and of its three terms (y), in elements, innermost dimension first.
struct Tf32SplitParams {
  uint32_t items = 0;  // the number of vectors of the operand
  FastDivmod size[kTf32Dimensions];
  int64_t x[kTf32Dimensions]{}, y[kTf32Dimensions]{};
  int64_t term_stride = 0;
  // The term (1 or 2) with the rounding errors. The other terms are the numbers rounded to TF32.
  int64_t rest_term = 0;
};

}  // namespace minidnn
