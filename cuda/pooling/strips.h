// SPDX-License-Identifier: Apache-2.0
// Gradients of maxima whose windows the compiler knows: a thread goes down a strip of dx, some columns wide, by lines of
// windows. The maximum of a window lies where its line is the first with the largest maximum, and its column the first
// in that line. So a window hands its dy to one of its lines, and the line, when all windows over it have, hands what it
// got from windows of the same columns to one column: twice a window's size in comparisons, not its square.
#pragma once
#include "cuda/pooling/tiles.h"

namespace minidnn::pooling {

template <class S, int kSteps, bool kAhead> struct Strip {
  static constexpr int kOver = (S::window - 1) / S::stride;  // windows before a strip's first that reach into it
  static constexpr int kWindows = kSteps + kOver;
  static constexpr int kColumns = kSteps * S::stride;                   // of dx
  static constexpr int kSeen = (kWindows - 1) * S::stride + S::window;  // of x
  static constexpr int kKept = S::window - S::stride;  // lines that windows have in common with the next
  static constexpr int kBefore = kOver * S::stride;    // columns of x, or lines, before the first of dx

  const Windows &h, &w;
  int begin, end, column;  // lines of dx, and its first column: where windows begin, perhaps before the plane

  MINIDNN_HD int first_window() const { return (column + w.before) / S::stride - kOver; }
  // Of x, and of what there is of each window.
  template <class T> using X = Columns<T, kSeen>;
  template <class T> using Y = Columns<T, kWindows>;
  template <class T> MINIDNN_HD X<T> x(const T* plane, int64_t line_stride, int64_t column_stride) const {
    return {plane, line_stride, column_stride, column - kBefore, w.size, 0, h.size};
  }
  template <class T> MINIDNN_HD Y<T> y(const T* plane, int64_t line_stride, int64_t column_stride) const {
    return {plane, line_stride, column_stride, first_window(), w.count, 0, h.count};
  }

  // put(line, dx) takes kColumns of a line; what lies beyond the plane, on any side, is nothing.
  template <class T, class Put>
  MINIDNN_HD void of_maxima(const X<T>& x, const Y<T>& dy, Put&& put) const {
    using R = FirstMaxima<1>;
    const int q = first_window();
    // Repeated edges are no places of maxima, and what is no window has none.
    int first_column[kWindows];
    MINIDNN_UNROLL
    for (int i = 0; i < kWindows; ++i)
      first_column[i] = (uint32_t(q + i) < uint32_t(w.count) ? max_of(-w.first(q + i), 0) : S::window) + i * S::stride;
    // Of the lines under way: the maxima of each window's columns, and what windows gave to them.
    typename R::Item maxima[S::window][kWindows];
    float given[S::window][kWindows];
    // A line of windows ahead, loads are under way.
    T x_ahead[S::stride][kSeen], dy_ahead[kWindows];
    auto load_x = [&](int line, T(&to)[kSeen]) {
      const T* from = x.at(line);
      MINIDNN_UNROLL
      for (int c = 0; c < kSeen; ++c) to[c] = x.of(from, c);
    };
    auto load = [&](int line, int p) {
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j) load_x(line + kKept + j, x_ahead[j]);
      const T* from = dy.at(p);
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) dy_ahead[i] = dy.of(from, i);
    };
    auto begin_line = [&](int j, const T(&from)[kSeen]) {
      typename R::Item item[kSeen];
      MINIDNN_UNROLL
      for (int c = 0; c < kSeen; ++c) item[c] = R::item({{float(from[c])}}, c);
      join_along<S, R, kWindows>(item, maxima[j]);
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i)
        maxima[j][i].place[0] = max_of(maxima[j][i].place[0], first_column[i]), given[j][i] = 0;
    };
    int line = begin - kBefore, p = (begin + h.before) / S::stride - kOver;
    MINIDNN_UNROLL
    for (int j = 0; j < kKept; ++j) {
      T kept[kSeen];
      load_x(line + j, kept);
      begin_line(j, kept);
    }
    if (kAhead) load(line, p);
    for (; line < end; line += S::stride, ++p) {
      if (!kAhead) load(line, p);
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j) begin_line(kKept + j, x_ahead[j]);
      float v[kWindows];
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) v[i] = float(dy_ahead[i]);
      if (kAhead) load(line + S::stride, p + 1);
      const int first_line = uint32_t(p) < uint32_t(h.count) ? max_of(-line, 0) : S::window;
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) {
        typename R::Item found{{maxima[0][i].of[0]}, {0}};
        MINIDNN_UNROLL
        for (int j = 1; j < S::window; ++j) found = R::join(found, {{maxima[j][i].of[0]}, {j}});
        const int at = max_of(found.place[0], first_line);
        MINIDNN_UNROLL
        for (int j = 0; j < S::window; ++j)
          if (at == j) given[j][i] += v[i];
      }
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j) {
        if (line + j < begin || line + j >= end) continue;
        float dx[kColumns]{};
        MINIDNN_UNROLL
        for (int k = 0; k < kColumns; ++k) MINIDNN_UNROLL
        for (int i = 0; i < kWindows; ++i)
          if (uint32_t(kBefore + k - i * S::stride) < uint32_t(S::window) && maxima[j][i].place[0] == kBefore + k)
            dx[k] += given[j][i];
        put(line + j, dx);
      }
      MINIDNN_UNROLL
      for (int j = 0; j < kKept; ++j) MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) maxima[j][i] = maxima[j + S::stride][i], given[j][i] = given[j + S::stride][i];
    }
  }

  // The same where the maxima's places in the plane are given; those that are none, or in no element of the window, take
  // nothing.
  template <class T, class I, class Put>
  MINIDNN_HD void of_indices(const Y<I>& indices, const Y<T>& dy, Put&& put) const {
    constexpr int kNone = -0x40000000;
    const int q = first_window();
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
