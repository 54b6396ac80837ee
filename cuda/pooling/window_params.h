// SPDX-License-Identifier: Apache-2.0
// The windows of pooling along one dimension, computed in 32-bit arithmetic.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn::cuda::pooling {

// The key of a window is the index of its maximum among the elements of dx that a block computes, or kNowhere if the
// maximum is not among them.
constexpr uint32_t kNowhere = 0xffff;
// The upper limit for sizes, strides, paddings and dilated windows. With it, sums of two of them fit 32 bits.
constexpr int64_t kMostSize = 1 << 24;

// The window size and stride of a kernel, as compile-time constants. Both are 0 if they are unknown at compile time. If
// they are known, the dilation is 1.
template <int kWindow, int kStride> struct Step {
  static constexpr int window = kWindow, stride = kStride;
};

// The windows of pooling along one dimension of x.
struct Windows {
  int32_t size = 1, count = 1;  // `size` is the number of elements of x, and `count` is the number of windows.
  int32_t window = 1, stride = 1, before = 0, after = 0, dilation = 1;
  FastDivmod by_stride;

  MINIDNN_HD int first(int at) const { return at * stride - before; }
  // A tap is an element of a window. begin(at, low) is the first tap of window `at` whose index in x is at least `low`.
  // end(at, high) is the number after the last tap whose index in x is below `high`.
  MINIDNN_HD int begin(int at, int low) const {
    int missing = low - first(at);
    return missing <= 0 ? 0 : dilation == 1 ? missing : ceil_div(missing, dilation);
  }
  MINIDNN_HD int end(int at, int high) const {
    int distance = high - first(at);
    if (distance <= 0) return 0;
    return min_of(window, dilation == 1 ? distance : ceil_div(distance, dilation));
  }
  MINIDNN_HD int counted(int at, bool exclude_padding) const {
    int low = exclude_padding ? 0 : -before, high = size + (exclude_padding ? 0 : after);
    return max_of(end(at, high) - begin(at, low), 0);
  }
  // Index `at` of x is in the windows over_begin(at) to over_end(at) - 1.
  MINIDNN_HD int over_begin(int at) const {
    int beyond = at + before - (window - 1) * dilation;
    return beyond > 0 ? int(by_stride.quotient(uint32_t(beyond + stride - 1))) : 0;
  }
  MINIDNN_HD int over_end(int at) const { return min_of(int(by_stride.quotient(uint32_t(at + before))) + 1, count); }
};

}  // namespace minidnn::cuda::pooling
