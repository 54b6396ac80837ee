// SPDX-License-Identifier: Apache-2.0
// Softmax along an axis whose elements are not adjacent in memory, for a strip of adjacent columns at a time.
#include "cpp/softmax/cpu/strip_loops.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// A strip: the outer index, its first inner index, and the number of its columns.
struct StripItem {
  int64_t outer, column, width;
};
inline __attribute__((always_inline)) StripItem strip_of(const SoftmaxTiling& tiling, int64_t item) {
  const int64_t strips = ceil_div(tiling.inner, tiling.width), column = item % strips * tiling.width;
  return {item / strips, column, min_of(tiling.width, tiling.inner - column)};
}
template <class T>
Strip<T> strip_at(const SoftmaxTiling& tiling, const T* tensor, const RowLayout& layout, const StripItem& item,
                  bool in_place) {
  return {tensor + layout.offset_of(item.outer) + item.column, layout.axis, item.width,
          end_of(tiling, tensor, in_place)};
}

template <class T>
void forward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void* scratch, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  auto x = static_cast<const T*>(a.in);
  auto y = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    const StripItem item = strip_of(tiling, i);
    Strip<T> strip = strip_at(tiling, x, tiling.in, item, x == y);
    forward_strip(strip, y + tiling.out.offset_of(item.outer) + item.column, tiling.out.axis, tiling.cols, tiling.log,
                  A(a.scale), tiling.non_temporal, static_cast<A*>(scratch));
  }
  if (tiling.non_temporal) store_fence();
}

template <class T>
void backward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void*, int64_t begin, int64_t end) {
  auto y = static_cast<const T*>(a.in), dy = static_cast<const T*>(a.dy);
  auto dx = static_cast<T*>(a.out);
  for (int64_t i = begin; i < end; ++i) {
    const StripItem item = strip_of(tiling, i);
    Strip<T> values = strip_at(tiling, y, tiling.in, item, y == dx);
    Strip<T> gradients = strip_at(tiling, dy, tiling.dy, item, dy == dx);
    backward_strip(values, gradients, dx + tiling.out.offset_of(item.outer) + item.column, tiling.out.axis, tiling.cols,
                   tiling.log, Accumulator<T>(a.scale), tiling.non_temporal);
  }
  if (tiling.non_temporal) store_fence();
}

}  // namespace

extern const SoftmaxLoops softmax_strip_loops;
const SoftmaxLoops softmax_strip_loops = {{forward<float>, forward<double>, forward<float16>, forward<bfloat16>},
                                          {backward<float>, backward<double>, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
