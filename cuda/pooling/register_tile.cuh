// SPDX-License-Identifier: Apache-2.0
// Tiles of windows of compile-time size. A thread computes a tile in registers. It joins the columns of each row of x
// first, and then the rows, so that elements in several windows are joined only once.
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

// Operations that join elements in order, such as a maximum or a sum. If `repeats` is true, joining an element twice
// does not change the result. Elements outside x are then replaced by the nearest elements of x.
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
// Returns v in canonical form: -0 becomes 0, and every NaN gets the same bits, so that equal numbers have equal bits.
MINIDNN_HD float with_one_nan(float v) {
#ifdef __CUDA_ARCH__
  return v + 0.f;  // -0 + 0 is 0, and any NaN + 0 is the NaN 0x7fffffff.
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

// Joins the elements of kCount windows along one dimension: out[k] joins the S::window elements from in[k * S::stride]
// on. At stride 1, each window is the end of one group of S::window - 1 elements and the beginning of the next group,
// and adjacent windows share partial results of the groups.
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

// The range of a tile along one dimension, from index `first` on. Only indices begin <= index < end are inside the
// tensor.
struct Span {
  int first, begin, end;
  MINIDNN_HD int nearest(int i) const { return max_of(min_of(first + i, end - 1), begin); }
  MINIDNN_HD bool has(int i) const { return uint32_t(first + i - begin) < uint32_t(end - begin); }
};

// The rows begin to end - 1 of a plane, and kN of its columns, as byte offsets. Outside, the nearest row or column
// inside is used.
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

// Joins the elements of all windows of a tile. read(r, c, exists) returns element (r, c). If `exists` is false, it
// returns zero, but still loads the nearest element, because a branch would separate the loads.
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
