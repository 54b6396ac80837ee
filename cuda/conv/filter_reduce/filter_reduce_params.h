// SPDX-License-Identifier: Apache-2.0
// The parameters of filter_reduce.cu. It adds the partial sums of dw that nchw_filter.cu, nhwc.cu or
// first_layer_filter.cu wrote. This header does not use std.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct FilterReduce {
  int64_t count = 0;                              // elements of dw; each partial sum has as many
  int64_t size[2 + kMaxSpatial]{1, 1, 1, 1, 1};   // [filter][channel][window], the order of a partial sum's elements
  int64_t stride[2 + kMaxSpatial]{}, origin = 0;  // of dw, in elements: strides, offset of the first element
  int32_t splits = 0;                             // number of partial sums
};

}  // namespace minidnn
