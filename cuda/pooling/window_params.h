// SPDX-License-Identifier: Apache-2.0
// The windows of pooling along one dimension, in 32-bit arithmetic.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/pooling/pooling_math.h"

namespace minidnn::cuda::pooling {

// The key of a maximum outside the block's slice of dx.
constexpr uint32_t kNowhere = 0xffff;
// Limit for each size and attribute: sums of two, and products with small numbers, fit 32 bits.
constexpr int64_t kMostSize = 1 << 24;

// kWindow and kStride are compile-time constants unless 0. If they are constants, the dilation is 1.
template <int kWindow, int kStride> struct Step {
  static constexpr int window = kWindow, stride = kStride;
};

// The windows along one dimension of x.
struct Windows {
  int32_t size = 1, count = 1;  // elements of x, windows (elements of y)
  int32_t window = 1, stride = 1, before = 0, after = 0, dilation = 1;
  FastDivmod by_stride;

  MINIDNN_HD int first(int at) const { return at * stride - before; }
  // The taps of window `at` whose indices in x are in [low, high): begin(at, low) to below end(at, high).
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
  // The windows that cover index `at` of x: over_begin(at) to below over_end(at).
  MINIDNN_HD int over_begin(int at) const {
    int beyond = at + before - (window - 1) * dilation;
    return beyond > 0 ? int(by_stride.quotient(uint32_t(beyond + stride - 1))) : 0;
  }
  MINIDNN_HD int over_end(int at) const { return min_of(int(by_stride.quotient(uint32_t(at + before))) + 1, count); }
};

}  // namespace minidnn::cuda::pooling
