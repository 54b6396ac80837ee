// SPDX-License-Identifier: Apache-2.0
// Softmax along an axis whose elements are not adjacent in memory, for a strip of adjacent columns at a time.
#include "cpp/softmax/cpu/strip_loops.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// The offset of a strip's first element, and the number of its columns.
struct StripItem {
  int64_t at, width;
};
inline __attribute__((always_inline)) StripItem strip_of(const SoftmaxTiling& tiling, int64_t item) {
  const int64_t strips = ceil_div(tiling.inner, tiling.width), column = item % strips * tiling.width;
  return {item / strips * tiling.cols * tiling.inner + column, min_of(tiling.width, tiling.inner - column)};
}

template <class T>
void forward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, float* scratch, int64_t begin, int64_t end) {
  auto x = static_cast<const T*>(a.in);
  auto y = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    const auto [at, width] = strip_of(tiling, i);
    Strip<T> strip{x + at, tiling.inner, width, end_of(tiling, x, x == y)};
    forward_strip(strip, y + at, tiling.cols, tiling.log, float(a.scale), tiling.non_temporal, scratch);
  }
  if (tiling.non_temporal) store_fence();
}

template <class T>
void backward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, float*, int64_t begin, int64_t end) {
  auto y = static_cast<const T*>(a.in), dy = static_cast<const T*>(a.dy);
  auto dx = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    const auto [at, width] = strip_of(tiling, i);
    Strip<T> values{y + at, tiling.inner, width, end_of(tiling, y, y == dx)};
    Strip<T> gradients{dy + at, tiling.inner, width, end_of(tiling, dy, dy == dx)};
    backward_strip(values, gradients, dx + at, tiling.cols, tiling.log, float(a.scale), tiling.non_temporal);
  }
  if (tiling.non_temporal) store_fence();
}

}  // namespace

extern const SoftmaxLoops softmax_strip_loops;
const SoftmaxLoops softmax_strip_loops = {{forward<float>, nullptr, forward<float16>, forward<bfloat16>},
                                          {backward<float>, nullptr, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
