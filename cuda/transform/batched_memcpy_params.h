// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.batched_memcpy.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMemcpyThreads = 256, kMemcpyAhead = 4, kMemcpyOuters = 6;

// A copy of spans. A span is `span` words that are contiguous in x and in y. In both tensors there may be gaps between
// spans. Their order in x and y may differ. Strides are in words.
struct BatchedMemcpyParams {
  uint32_t words = 0;  // words of all spans
  FastDivmod span, outer[kMemcpyOuters];
  int64_t x_outer[kMemcpyOuters]{}, y_outer[kMemcpyOuters]{};  // strides of the other dimensions, from the innermost
};

}  // namespace minidnn
