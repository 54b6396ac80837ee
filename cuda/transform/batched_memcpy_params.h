// SPDX-License-Identifier: Apache-2.0
// The parameters of cuda.transform.batched_memcpy.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kMemcpyThreads = 256, kMemcpyAhead = 4, kMemcpyOuters = 6;

// A copy of many spans. A span is `span` words that are contiguous in x and in y, which may have the spans in different
// orders, and gaps between them. All strides are in words.
struct BatchedMemcpyParams {
  uint32_t words = 0;  // the number of words of all spans
  FastDivmod span, outer[kMemcpyOuters];
  // The strides of all dimensions except the contiguous one, beginning with the innermost.
  int64_t x_outer[kMemcpyOuters]{}, y_outer[kMemcpyOuters]{};
};

}  // namespace minidnn
