// SPDX-License-Identifier: Apache-2.0
// Strips of windows of compile-time size, for gradients of maxima. A strip is adjacent columns of windows, such as
// columns 0 to 6. A thread loops down the rows of a strip, and finds the first maximum of each window. Elements in
// several windows are joined only once.
#pragma once
#include "cuda/pooling/register_tile.cuh"

#ifdef __CUDACC__
#include "cuda/device/ptx/math.cuh"
#endif

namespace minidnn::cuda::pooling {

// Returns the bits of a 16-bit number in canonical form: -0 becomes 0, and every NaN gets the same bits.
template <class T> MINIDNN_HD uint32_t bits_with_one_nan(T v) {
#ifdef __CUDA_ARCH__
  return fma_x2(T(), v.bits, T(1.f).bits, 0);  // computes v * 1 + 0; the result for any NaN is 0x7fff
#else
  return float(v) != float(v) ? 0x7fff : T(float(v) + 0.f).bits;
#endif
}

// The first maximum of some elements, and its index from 0 to 65535, as one 32-bit word. The upper bits are the
// element, and the lower bits are larger for smaller indices, so the larger word wins.
template <class T, bool kInWord = sizeof(T) == 2> struct First : FirstMaxima<1> {
  MINIDNN_HD static Item item(T v, int index) { return FirstMaxima<1>::item({{float(v)}}, index); }
  MINIDNN_HD static Item moved(Item item, int by) {
    item.index[0] += by;
    return item;
  }
  MINIDNN_HD static int index(const Item& item) { return item.index[0]; }
};
template <class T> struct First<T, true> {
  using Item = uint32_t;
  MINIDNN_HD static Item item(T v, int index) {
    const uint32_t word = (bits_with_one_nan(v) << 16) + (0x8000ffff - uint32_t(index));
    // The bits of negative numbers are inverted, so that larger numbers have larger bits.
    return word ^ (~uint32_t(int32_t(word) >> 31) & 0x7fff0000);
  }
  MINIDNN_HD static Item join(Item a, Item b) { return max_of(a, b); }
  MINIDNN_HD static Item moved(Item item, int by) { return item - uint32_t(by); }
  MINIDNN_HD static int index(Item item) { return int(~item); }  // The lower 16 bits of the result are the index.
};

// The integer type of an index with kBytes bytes.
template <int kBytes> struct IndexOf {
  using type = int64_t;
};
template <> struct IndexOf<4> {
  using type = int32_t;
};

// The row and column of a given index. `seen` tells whether it is inside the window, which begins at row first_line and
// column first_column. If not, the dy of the window is dropped.
template <class S> struct Given {
  int line, column;
  bool seen;
  template <class I>
  MINIDNN_HD Given(I index, const FastDivmod& by_width, int first_line, int first_column) {
    uint32_t rest = uint32_t(index);
    column = by_width.divmod(rest);
    line = int(rest);
    seen = (index == I(uint32_t(index))) & (rest - uint32_t(first_line) < uint32_t(S::window)) &
           (uint32_t(column) - uint32_t(first_column) < uint32_t(S::window));
  }
};

// A strip of kWindows columns of windows.
template <class T, class S, int kWindows> struct Strip {
  using R = First<T>;
  using Item = typename R::Item;
  // the rows (or columns) of x that adjacent windows have in common
  static constexpr int kKept = S::window - S::stride;
  static constexpr int kOver = (S::window - 1) / S::stride;  // the number of windows before a window that overlap it
  // the number of rows of windows that one iteration processes
  static constexpr int kAtOnce = S::stride > 1 ? 1 : kKept;
  // the number of columns of x that the windows of a row contain
  static constexpr int kSeen = (kWindows - 1) * S::stride + S::window;
  // The number of rows of windows just above the strip that overlap it. The loop over a strip begins with them.
  static constexpr int kEarlier = (kKept + S::stride - 1) / S::stride;

  const Windows& h;
  int first;  // the number of columns of the strip's windows that are left of the plane

  // `q` is the column of the strip's first window. If it is negative, this window does not exist.
  MINIDNN_HD Strip(const Windows& h, const Windows& w, int q) : h(h), first(max_of(-w.first(q), 0)) {}

  // Loops over the rows of windows from p - kEarlier to p_end - 1. For each row, calls:
  // - step(row).
  // - read(line, j, column) for the elements of the lowest `stride` rows of x, where `line` is the row of x and j
  //   counts these rows. Outside the plane, read() returns the nearest element inside.
  // - visit(row, maxima), from row p on. The index of an element is of_line(line) plus its column in the strip.
  template <class Step, class Read, class OfLine, class Visit>
  MINIDNN_HD void each_line(int p, int p_end, Step&& step, Read&& read, OfLine&& of_line, Visit&& visit) const {
    int line = h.first(p);
    auto find = [&](int at, int j, Item(&found)[kWindows]) {
      Item item[kSeen];
      MINIDNN_UNROLL
      for (int c = 0; c < kSeen; ++c)
        item[c] = R::item(read(at, j, c), c < kOver * S::stride + S::window - 1 ? max_of(c, first) : c);
      join_axis<S, R, kWindows>(item, found);
      const int by = of_line(max_of(at, 0));
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) found[i] = R::moved(found[i], by);
    };
    Item lines[S::window][kWindows];
    MINIDNN_UNROLL
    for (int n = -kEarlier; n < 0; ++n) {
      step(p + n);
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j) {
        const int at = kKept + n * S::stride + j;
        if (at >= 0) find(line + at, j, lines[at]);
      }
    }
    for (; p < p_end; p += kAtOnce, line += kAtOnce * S::stride) {
      if constexpr (S::stride == 1) {
        // A window consists of the end of one group of kKept rows of x and the beginning of the next group.
        MINIDNN_UNROLL
        for (int j = kKept - 2; j >= 0; --j) MINIDNN_UNROLL
        for (int i = 0; i < kWindows; ++i) lines[j][i] = R::join(lines[j][i], lines[j + 1][i]);
        Item beginning[kWindows];
        MINIDNN_UNROLL
        for (int j = 0; j < kKept; ++j) {
          Item next[kWindows], found[kWindows];
          step(p + j);
          find(line + kKept + j, 0, next);
          MINIDNN_UNROLL
          for (int i = 0; i < kWindows; ++i) {
            beginning[i] = j ? R::join(beginning[i], next[i]) : next[i];
            found[i] = R::join(lines[j][i], beginning[i]);
            lines[j][i] = next[i];
          }
          visit(p + j, found);
          if (p + j + 1 >= p_end) return;
        }
      } else {
        step(p);
        MINIDNN_UNROLL
        for (int j = 0; j < S::stride; ++j) find(line + kKept + j, j, lines[kKept + j]);
        Item found[kWindows];
        MINIDNN_UNROLL
        for (int i = 0; i < kWindows; ++i) {
          found[i] = lines[0][i];
          MINIDNN_UNROLL
          for (int j = 1; j < S::window; ++j) found[i] = R::join(found[i], lines[j][i]);
          MINIDNN_UNROLL
          for (int j = 0; j < kKept; ++j) lines[j][i] = lines[j + S::stride][i];
        }
        visit(p, found);
      }
    }
  }
};

}  // namespace minidnn::cuda::pooling
