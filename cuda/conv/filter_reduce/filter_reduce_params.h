// SPDX-License-Identifier: Apache-2.0
// The parameters of filter_reduce.cu, which adds the partial sums of dw from nchw.cu, nhwc.cu and
// first_layer_filter.cu. Std-free.
#pragma once
#include "cpp/conv/conv_math.h"

namespace minidnn {

struct FilterReduce {
  int64_t count = 0;                              // elements of dw, and of each partial sum
  int64_t size[2 + kMaxSpatial]{1, 1, 1, 1, 1};   // [filter][channel][window], the order of a partial sum
  int64_t stride[2 + kMaxSpatial]{}, origin = 0;  // strides and offset of the first element of dw
  int32_t splits = 0;                             // number of partial sums
};

}  // namespace minidnn
