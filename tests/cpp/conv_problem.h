// SPDX-License-Identifier: Apache-2.0
// Square float32 convolutions for tests of how CPU engines divide their work, and a function that reports a failed
// check.
#pragma once
#include <iostream>

#include "cpp/conv/conv.h"

namespace minidnn {

inline int failures = 0;
inline void expect(bool right, const ConvProblem& p, const char* what) {
  if (right) return;
  ++failures;
  std::cout << Family<ConvProblem>::text(p) << ": " << what << std::endl;
}

// Makes a convolution of x [images, c, h, h] with w [k, c, r, r]. Each side of x has r / 2 elements of padding.
inline ConvProblem square_conv(ConvDirection direction, int64_t images, int64_t c, int64_t h, int64_t k, int64_t r,
                               int64_t stride, Layout layout = Layout::channels_last) {
  ConvProblem p;
  p.direction = direction;
  const int64_t out = (h + r / 2 * 2 - r) / stride + 1;
  p.x = dense(DType::float32, Shape{images, c, h, h}, layout, "test");
  p.w = dense(DType::float32, Shape{k, c, r, r}, layout, "test");
  p.y = dense(DType::float32, Shape{images, k, out, out}, layout, "test");
  for (int j = 0; j < 2; ++j) {
    p.spatial.stride[j] = stride;
    p.spatial.before[j] = p.spatial.after[j] = r / 2;
  }
  return p;
}

inline Device cpu_with_threads(int threads) {
  Device d;
  d.sm_count = threads;
  return d;
}

}  // namespace minidnn
