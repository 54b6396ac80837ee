// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.batched_memcpy.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMemcpyThreads = 256, kMemcpyAhead = 4, kMemcpyOuters = 6;

// A copy of spans of words that are contiguous in x and in y. The spans may have gaps between them, and a different
// order in y. Strides count words.
struct BatchedMemcpyParams {
  uint32_t words = 0;  // words of the whole copy
  FastDivmod span, outer[kMemcpyOuters];
  int64_t x_outer[kMemcpyOuters]{}, y_outer[kMemcpyOuters]{};  // strides of the outer dimensions, the innermost first
};

}  // namespace minidnn
