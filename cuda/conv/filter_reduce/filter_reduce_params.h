// SPDX-License-Identifier: Apache-2.0
// The parameters of filter_reduce.cu. The kernel adds the partial sums of dw that nchw_filter.cu, nhwc.cu or
// first_layer_filter.cu wrote. This header does not use std.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct FilterReduce {
  int64_t count = 0;  // the number of elements of dw; each partial sum of dw has as many
  // The sizes of dw in the order of its partial sums: [filter][channel][window].
  int64_t size[2 + kMaxSpatial]{1, 1, 1, 1, 1};
  // The strides of dw, and the offset of its first element, both in elements.
  int64_t stride[2 + kMaxSpatial]{}, origin = 0;
  int32_t splits = 0;  // the number of partial sums
};

}  // namespace minidnn
