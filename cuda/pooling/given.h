// SPDX-License-Identifier: Apache-2.0
// Gradients of maxima whose places are given, where the compiler knows the windows: a thread goes down a strip of dx, some
// columns wide, by lines of windows, and adds up in registers what each has for its elements.
#pragma once
#include "cuda/pooling/tiles.h"

namespace minidnn::pooling {

template <class S, int kSteps> struct GivenStrip {
  static constexpr int kOver = (S::window - 1) / S::stride;  // windows before a strip's first that reach into it
  static constexpr int kWindows = kSteps + kOver;
  static constexpr int kColumns = kSteps * S::stride;  // of dx
  static constexpr int kKept = S::window - S::stride;  // lines that windows have in common with the next
  static constexpr int kBefore = kOver * S::stride;    // lines before the first of dx

  const Windows &h, &w;
  int begin, end, column;  // lines of dx, and its first column: where windows begin, perhaps before the plane

  // What there is of each window.
  template <class T> using Y = Columns<T, kWindows>;
  template <class T> MINIDNN_HD Y<T> y(const T* plane, int64_t line_stride, int64_t column_stride) const {
    return {plane, line_stride, column_stride, (column + w.before) / S::stride - kOver, w.count, 0, h.count};
  }

  // put(line, dx) takes kColumns of a line; what lies beyond the plane, on any side, is nothing. Places that are none, or in
  // no element of the window, take nothing.
  template <class T, class I, class Put>
  MINIDNN_HD void of_indices(const Y<I>& indices, const Y<T>& dy, Put&& put) const {
    constexpr int kNone = -0x40000000;
    const int q = (column + w.before) / S::stride - kOver;
    float sum[S::window][kColumns]{};
    // A line ahead, loads are under way.
    I index_ahead[kWindows];
    T dy_ahead[kWindows];
    auto load = [&](int p) {
      const I* index = indices.at(p);
      const T* from = dy.at(p);
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) index_ahead[i] = indices.of(index, i), dy_ahead[i] = dy.of(from, i);
    };
    int line = begin - kBefore, p = (begin + h.before) / S::stride - kOver;
    load(p);
    for (; line < end; line += S::stride, ++p) {
      int at[kWindows];
      float v[kWindows];
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) {
        const I place = index_ahead[i];
        const bool exists = uint32_t(p) < uint32_t(h.count) && uint32_t(q + i) < uint32_t(w.count);
        at[i] = exists && place == int32_t(place) ? int32_t(place) - line * w.size - column : kNone;
        v[i] = float(dy_ahead[i]);
      }
      load(p + 1);
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) {
        MINIDNN_UNROLL
        for (int j = 0; j < S::window; ++j, at[i] -= w.size) MINIDNN_UNROLL
        for (int k = 0; k < kColumns; ++k)
          if (uint32_t(kBefore + k - i * S::stride) < uint32_t(S::window) && at[i] == k) sum[j][k] += v[i];
      }
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j)
        if (line + j >= begin && line + j < end) put(line + j, sum[j]);
      MINIDNN_UNROLL
      for (int j = 0; j < S::window; ++j) MINIDNN_UNROLL
      for (int k = 0; k < kColumns; ++k) sum[j][k] = j < kKept ? sum[j + S::stride][k] : 0.f;
    }
  }
};

}  // namespace minidnn::pooling
