// SPDX-License-Identifier: Apache-2.0
// Tiles of windows of compile-time size. A thread computes a tile in registers. For each row of x, it first joins the
// columns for all windows that contain the row. Then it joins the rows. So elements that neighbouring windows share
// are joined only once, across and down.
#pragma once
#include "cuda/pooling/vector_lanes.cuh"

namespace minidnn::cuda::pooling {

template <int kN> struct Lanes {
  float of[kN];
};
template <class T> constexpr int kInWord = 4 / int(sizeof(T));
template <class T> MINIDNN_HD Lanes<kInWord<T>> lanes_in(uint32_t word) {
  const Words v{{word}};
  Lanes<kInWord<T>> lanes;
  MINIDNN_UNROLL
  for (int i = 0; i < kInWord<T>; ++i) lanes.of[i] = lane<T>(v, i);
  return lanes;
}
template <class T> MINIDNN_HD uint32_t word_of_lanes(const Lanes<kInWord<T>>& lanes) {
  if constexpr (sizeof(T) == 4) return word_of(lanes.of[0]);
  else return word_of(T(lanes.of[0]), T(lanes.of[1]));
}

// Operations that join elements in order, such as a maximum or a sum. `repeats` tells whether an element may be joined
// twice without changing the result. If so, elements outside x are replaced by the nearest elements of x. These are in
// the window, too, because each window of compile-time size contains some element of x.
template <bool kIsMax> struct Joined {
  static constexpr bool repeats = kIsMax;
  using Item = float;
  MINIDNN_HD static Item join(Item a, Item b) { return kIsMax ? larger(a, b) : a + b; }
};
template <class T> struct WordMaxima {
  static constexpr bool repeats = true;
  using Item = uint32_t;
  MINIDNN_HD static Item join(Item a, Item b) { return larger_in<T>(a, b); }
};
template <int kN> struct Sums {
  static constexpr bool repeats = false;
  using Item = Lanes<kN>;
  MINIDNN_HD static Item join(const Item& a, const Item& b) {
    Item sum;
    MINIDNN_UNROLL
    for (int i = 0; i < kN; ++i) sum.of[i] = a.of[i] + b.of[i];
    return sum;
  }
};
// Returns v in canonical form: -0 becomes 0, and every NaN gets the same bits. In this form, a number equals the
// maximum of two numbers exactly if it has the same bits.
MINIDNN_HD float with_one_nan(float v) {
#ifdef __CUDA_ARCH__
  return v + 0.f;  // The sum -0 + 0 is 0, and the sum of any NaN and 0 is the NaN 0x7fffffff.
#else
  return v != v ? detail::float_of(0x7fffffff) : v + 0.f;
#endif
}
template <int kN> struct FirstMaxima {
  static constexpr bool repeats = true;
  struct Item {
    float of[kN];
    int32_t index[kN];
  };
  MINIDNN_HD static Item item(const Lanes<kN>& v, int32_t index) {
    Item item;
    MINIDNN_UNROLL
    for (int i = 0; i < kN; ++i) item.of[i] = with_one_nan(v.of[i]), item.index[i] = index;
    return item;
  }
  MINIDNN_HD static Item join(const Item& a, const Item& b) {
    Item first;
    MINIDNN_UNROLL
    for (int i = 0; i < kN; ++i) {
      first.of[i] = larger(a.of[i], b.of[i]);
      first.index[i] = word_of(a.of[i]) == word_of(first.of[i]) ? a.index[i] : b.index[i];
    }
    return first;
  }
};

// Joins the elements of kCount windows along one dimension. out[k] joins the S::window elements that begin with in[k *
// S::stride]. At stride 1, the elements are divided into groups of S::window - 1 elements. Each window consists of the
// end of one group and the beginning of the next group, and neighbouring windows share partial results of these.
template <class S, class R, int kCount, class Item = typename R::Item>
MINIDNN_HD void join_axis(const Item (&in)[(kCount - 1) * S::stride + S::window], Item (&out)[kCount]) {
  if constexpr (S::stride == 1 && S::window > 2) {
    constexpr int kBlock = S::window - 1;
    MINIDNN_UNROLL
    for (int first = 0; first < kCount; first += kBlock) {
      Item end[kBlock], begin = in[first + kBlock];
      end[kBlock - 1] = in[first + kBlock - 1];
      MINIDNN_UNROLL
      for (int i = kBlock - 2; i >= 0; --i) end[i] = R::join(in[first + i], end[i + 1]);
      MINIDNN_UNROLL
      for (int i = 0; i < kBlock; ++i) {
        if (first + i >= kCount) break;
        if (i > 0) begin = R::join(begin, in[first + kBlock + i]);
        out[first + i] = R::join(end[i], begin);
      }
    }
  } else {
    MINIDNN_UNROLL
    for (int k = 0; k < kCount; ++k) {
      out[k] = in[k * S::stride];
      MINIDNN_UNROLL
      for (int i = 1; i < S::window; ++i) out[k] = R::join(out[k], in[k * S::stride + i]);
    }
  }
}

// The range of a tile along one dimension. `first` is the index at which the tile's first window begins. Only indices
// with begin <= index < end are inside the tensor.
struct Span {
  int first, begin, end;
  MINIDNN_HD int nearest(int i) const { return max_of(min_of(first + i, end - 1), begin); }
  MINIDNN_HD bool has(int i) const { return uint32_t(first + i - begin) < uint32_t(end - begin); }
};

// The rows begin to end - 1 of a plane, and kN of its columns. Columns are stored as byte offsets, which saves
// multiplications. If a row or a column is outside these rows or outside the plane, the nearest one inside is used.
template <class T, int kN> struct Columns {
  const T* plane;
  uint32_t line, offset[kN];
  int begin, end;

  MINIDNN_HD Columns(const T* plane, int64_t line, int64_t column, int first, int size, int begin, int end)
      : plane(plane), line(uint32_t(line)), begin(begin), end(end) {
    MINIDNN_UNROLL
    for (int i = 0; i < kN; ++i)
      offset[i] = uint32_t(min_of(max_of(first + i, 0), size - 1)) * uint32_t(column) * uint32_t(sizeof(T));
  }
  MINIDNN_HD const T* at(int l) const { return plane + uint32_t(max_of(min_of(l, end - 1), begin)) * line; }
  MINIDNN_HD T of(const T* at, int i) const {
    return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(at) + offset[i]);
  }
};

// Joins the elements of all windows of a tile. read(r, c, exists) returns element (r, c) of the tile. If `exists` is
// false, it loads the nearest element that exists, but returns zero. This takes no branch, because a branch would keep
// the loads from being in flight at the same time.
template <class S, class R, int kDown, int kAcross, class Read, class Item = typename R::Item>
MINIDNN_HD void join_tile(const Span& lines, const Span& columns, Read&& read, Item (&found)[kDown][kAcross]) {
  constexpr int kLines = (kDown - 1) * S::stride + S::window, kColumns = (kAcross - 1) * S::stride + S::window;
  Item of_lines[kAcross][kLines];
  MINIDNN_UNROLL
  for (int r = 0; r < kLines; ++r) {
    Item line[kColumns], joined[kAcross];
    MINIDNN_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const bool exists = R::repeats || (lines.has(r) && columns.has(c));
      line[c] = read(r, c, exists);
    }
    join_axis<S, R, kAcross>(line, joined);
    MINIDNN_UNROLL
    for (int k = 0; k < kAcross; ++k) of_lines[k][r] = joined[k];
  }
  MINIDNN_UNROLL
  for (int k = 0; k < kAcross; ++k) {
    Item down[kDown];
    join_axis<S, R, kDown>(of_lines[k], down);
    MINIDNN_UNROLL
    for (int d = 0; d < kDown; ++d) found[d][k] = down[d];
  }
}

}  // namespace minidnn::cuda::pooling
