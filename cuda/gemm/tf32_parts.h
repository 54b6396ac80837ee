// SPDX-License-Identifier: Apache-2.0
// The parameters of tf32_parts.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kTf32Dimensions = 5;

// A tensor as it is read and as its parts are written, dimensions from the innermost outwards; strides in elements.
struct Tf32Parts {
  uint32_t items = 0;  // vectors, or elements
  FastDivmod size[kTf32Dimensions];
  int64_t x[kTf32Dimensions]{}, y[kTf32Dimensions]{};
  int64_t part = 0;      // from one part to the next
  int64_t small_at = 0;  // which of the three parts has what TF32 leaves: 1 or 2; the others have what it keeps
};

}  // namespace minidnn
