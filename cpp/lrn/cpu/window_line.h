// SPDX-License-Identifier: Apache-2.0
// What the vectorised loops of cpu.lrn.cross_channel and cpu.lrn.spatial_window share. Squares are summed anew for each
// window, because a sliding sum would keep the rounding errors of large elements that have left the window.
#pragma once
#include "cpp/core/host_device/elementary.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {

template <class T> MINIDNN_HD Floats read(const T* from, int64_t lanes) {
  return lanes == kFloats ? load_floats(from) : load_first(from, lanes);
}
template <class T> MINIDNN_HD void write(T* to, int64_t lanes, Floats v) {
  if (lanes == kFloats) store_floats(to, v);
  else store_first(to, lanes, v);
}
MINIDNN_HD Floats inverse_power(Floats s, float beta) { return elementary::exp(-beta * elementary::log(s)); }

constexpr int64_t kLineChunk = 512;  // the largest number of elements of a row that are processed together
// A copy of a part of a row, with kMargin elements on both sides. Elements outside the row are zero.
constexpr int64_t kMargin = 32;
static_assert(kMargin % kFloats == 0);
struct Line {
  float at[kMargin + kLineChunk + kMargin + kFloats];
  MINIDNN_HD float* operator+(int64_t i) { return at + kMargin + i; }
};

// Copies the elements [first + begin, first + end) of a row of n elements to the indices [begin, end) of a Line.
// Elements outside the row become zero.
template <class T>
MINIDNN_HD void read_line(int64_t n, const T* row, int64_t first, int64_t begin, int64_t end, Line& to) {
  const int64_t from = max_of(begin, -first), until = min_of(end, n - first);
  for (int64_t i = begin; i < from; ++i) *(to + i) = 0;
  for (int64_t i = from; i < until; i += kFloats)
    store(to + i, read(row + first + i, min_of(int64_t(kFloats), until - i)));
  for (int64_t i = max_of(until, from); i < end; ++i) *(to + i) = 0;
}

}  // namespace minidnn::MINIDNN_ISA
