// SPDX-License-Identifier: Apache-2.0
// Pooling of tensors with contiguous channels (NHWC): how the work is divided among threads, and forward. A thread
// computes several windows, one below the other, for 16 bytes of channels, or a tile of windows for one 32-bit word of
// channels. If there are few windows, several teams of threads share each window. Elements in several windows are read
// again from the L1 or L2 cache.
#pragma once
#include "cuda/pooling/block_copy.cuh"
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/register_tile.cuh"

namespace minidnn::cuda::pooling {

template <class T> constexpr int kDownOf = down_of(kLanes<T>);
template <class S> constexpr int kAcross = across_of(S::stride);

// Computes kDownOf windows, one below the other, without dilation, and reads each row of x once for all of them. Calls
// put(d, result of window p + d) for each d below kDownOf with p + d < p_end. L is the type that accumulates a result.
// index_of(line, column) is the index that L records for an element. kAtOnce loads are in flight; in backward, there
// are registers for only 2.
template <class L, int kAtOnce, class T, class ElementIndex, class Put>
MINIDNN_HD void each_down(const NhwcParams& s, const T* x, int p, int p_end, int q, ElementIndex&& index_of,
                          Put&& put) {
  const int windows = min_of(kDownOf<T>, p_end - p), first = s.h.first(p);
  const int begin = max_of(first, 0), end = min_of(first + (windows - 1) * s.h.stride + s.h.window, s.h.size);
  const int c_begin = max_of(s.w.first(q), 0), c_end = min_of(s.w.first(q) + s.w.window, s.w.size);
  const T* from = x + begin * s.x_line + c_begin * s.x_column;
  L found[kDownOf<T>];
  MINIDNN_UNROLL
  for (int d = 0; d < kDownOf<T>; ++d) found[d].clear();
  for (int line = begin; line < end; ++line, from += s.x_line) {
    const T* at = from;
    L of_line;
    of_line.clear();
    of_line.begin(c_begin < c_end ? index_of(line, c_begin) : -1);
    for (int c = c_begin; c < c_end; c += kAtOnce) {
      Words v[kAtOnce];
      MINIDNN_UNROLL
      for (int k = 0; k < kAtOnce; ++k, at += s.x_column)
        if (c + k < c_end) v[k] = load_words(at);
      MINIDNN_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (c + k < c_end) of_line.next(v[k], index_of(line, c + k));
    }
    MINIDNN_UNROLL
    for (int d = 0; d < kDownOf<T>; ++d)
      if (uint32_t(line - first - d * s.h.stride) < uint32_t(s.h.window)) found[d].join(of_line);
  }
  MINIDNN_UNROLL
  for (int d = 0; d < kDownOf<T>; ++d)
    if (d < windows) put(d, found[d]);
}

// An image as an array of 32-bit words of channels, with 32-bit offsets, because it has fewer than 2^31 elements.
template <class T> struct WordsOf {
  const uint32_t* image;
  uint32_t line, column;
  MINIDNN_HD WordsOf(const T* first, int64_t line, int64_t column)
      : image(reinterpret_cast<const uint32_t*>(first)),
        line(uint32_t(line) / kInWord<T>),
        column(uint32_t(column) / kInWord<T>) {}
  MINIDNN_HD uint32_t at(int l, int c, int word, bool exists = true) const {
    const uint32_t v = image[uint32_t(l) * line + (uint32_t(c) * column + uint32_t(word))];
    return exists ? v : 0;
  }
};

template <class T, bool kIsMax, class S> struct NhwcForward {
  static constexpr int kDown = kStaticDown, kWidth = kLanes<T>;
  const NhwcParams& s;
  const PoolingArgs& a;
  int64_t image;
  // the windows and channels that this thread computes, as a linear index
  int item;

  MINIDNN_HD const T* x(int vector) const { return static_cast<const T*>(a.x) + image * s.x_image + vector * kWidth; }
  MINIDNN_HD T* y(int p, int q, int vector) const {
    return static_cast<T*>(a.out) + image * s.y_image + p * s.y_line + q * s.y_column + vector * kWidth;
  }
  MINIDNN_HD float mean_factor(int p, int q) const { return kIsMax ? 1.f : mean_factor_of<S>(s, p, q); }
  MINIDNN_HD void pool_vectors() {
    using L = MaxLanes<T>;
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.divmod(rest), q = s.by_columns.divmod(rest), p = int(rest) * kDown;
    const int line = p * S::stride - s.h.before, column = q * S::stride - s.w.before;
    const T* from = x(vector) + line * s.x_line + column * s.x_column;
    constexpr int kLines = (kDown - 1) * S::stride + S::window;
    L joined[kLines];
    MINIDNN_UNROLL
    for (int r = 0; r < kLines; ++r) {
      joined[r].clear();
      MINIDNN_UNROLL
      for (int c = 0; c < S::window; ++c)
        if (uint32_t(line + r) < uint32_t(s.h.size) && uint32_t(column + c) < uint32_t(s.w.size))
          joined[r].join(load_words(from + r * s.x_line + c * s.x_column));
    }
    MINIDNN_UNROLL
    for (int d = 0; d < kDown; ++d) {
      if (p + d >= s.h.count) break;
      L total = joined[d * S::stride];
      MINIDNN_UNROLL
      for (int r = 1; r < S::window; ++r) total.join(joined[d * S::stride + r]);
      store_words(y(p + d, q, vector), total.result(mean_factor(p + d, q)));
    }
  }
  // Computes a tile of windows for one 32-bit word of channels. R joins elements of type R::Item, to which
  // item_of(word, index) converts a word of x. put(item, p, q, word) stores the result of window (p, q) for word number
  // `word`.
  template <class R, class Item, class Put> MINIDNN_HD void pool_tile(Item&& item_of, Put&& put) {
    constexpr int kWide = kAcross<S>;
    uint32_t rest = uint32_t(item);
#ifdef __CUDA_ARCH__
    // Without this asm barrier, the compiler computes the addresses of all branches first, and needs too many
    // registers.
    asm volatile("" : "+r"(rest));
#endif
    const int word = s.by_words.divmod(rest), q = s.by_columns.divmod(rest) * kWide, p = int(rest) * kDown;
    const Span h{p * S::stride - s.h.before, 0, s.h.size}, w{q * S::stride - s.w.before, 0, s.w.size};
    const WordsOf<T> x(static_cast<const T*>(a.x) + image * s.x_image, s.x_line, s.x_column);
    typename R::Item found[kDown][kWide];
    join_tile<S, R>(
        h, w,
        [&](int r, int c, bool exists) {
          const int line = h.nearest(r), column = w.nearest(c);
          return item_of(x.at(line, column, word, exists), line * s.w.size + column);
        },
        found);
    MINIDNN_UNROLL
    for (int d = 0; d < kDown; ++d) MINIDNN_UNROLL
    for (int k = 0; k < kWide; ++k)
      if (p + d < s.h.count && q + k < s.w.count) put(found[d][k], p + d, q + k, word);
  }
  MINIDNN_HD void put_word(int p, int q, int word, uint32_t v) const {
    T* to = static_cast<T*>(a.out) + image * s.y_image + word * kInWord<T>;
    *reinterpret_cast<uint32_t*>(to + p * int(s.y_line) + q * int(s.y_column)) = v;
  }
  MINIDNN_HD void pool_with_indices() {
    constexpr int n = kInWord<T>;
    using R = FirstMaxima<n>;
    pool_tile<R>([&](uint32_t word, int index) { return R::item(lanes_in<T>(word), index); },
                 [&](const typename R::Item& found, int p, int q, int word) {
                   Lanes<n> out;
                   const int64_t at =
                       image * s.indices_image + (p * int(s.indices_line) + q * int(s.indices_column) + word * n);
                   MINIDNN_UNROLL
                   for (int i = 0; i < n; ++i) {
                     out.of[i] = found.of[i];
                     const int index = found.index[i];
                     if (s.index_bytes == 8) static_cast<int64_t*>(a.indices)[at + i] = index;
                     else static_cast<int32_t*>(a.indices)[at + i] = index;
                   }
                   put_word(p, q, word, word_of_lanes<T>(out));
                 });
  }
  MINIDNN_HD void pool() {
    if constexpr (!kIsMax) {
      constexpr int n = kInWord<T>;
      pool_tile<Sums<n>>([&](uint32_t word, int) { return lanes_in<T>(word); },
                         [&](Lanes<n> sum, int p, int q, int word) {
                           MINIDNN_UNROLL
                           for (int i = 0; i < n; ++i) sum.of[i] *= mean_factor(p, q);
                           put_word(p, q, word, word_of_lanes<T>(sum));
                         });
    } else if (s.index_bytes) {
      pool_with_indices();
    } else if constexpr (takes_words(kIsMax, S::window)) {
      pool_tile<WordMaxima<T>>([&](uint32_t word, int) { return word; },
                               [&](uint32_t found, int p, int q, int word) { put_word(p, q, word, found); });
    } else {
      pool_vectors();
    }
  }

  template <class L> MINIDNN_HD void pool_down_with() {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.divmod(rest), q = s.by_columns.divmod(rest), p = int(rest) * pooling::kDownOf<T>;
    each_down<L, 4>(
        s, x(vector), p, s.h.count, q, [&](int line, int column) { return line * s.w.size + column; },
        [&](int d, const L& found) {
          store_words(y(p + d, q, vector), found.result(mean_factor(p + d, q)));
          if constexpr (L::has_indices) {
            int32_t index[kWidth];
            MINIDNN_UNROLL
            for (int i = 0; i < kWidth; ++i) index[i] = found.of[i].index;
            put_indices(p + d, q, vector, index);
          }
        });
  }
  // Stores indices in 16-byte words: four int32 or two int64 indices per iteration.
  MINIDNN_HD void put_indices(int p, int q, int vector, const int32_t (&index)[kWidth]) const {
    const int64_t at = image * s.indices_image + p * s.indices_line + q * s.indices_column + vector * kWidth;
    auto sign = [](int32_t v) { return uint32_t(v >> 31); };
    if (s.index_bytes == 4) {
      MINIDNN_UNROLL
      for (int i = 0; i < kWidth; i += 4)
        store_words(static_cast<int32_t*>(a.indices) + at + i,
                    {uint32_t(index[i]), uint32_t(index[i + 1]), uint32_t(index[i + 2]), uint32_t(index[i + 3])});
    } else if (s.index_bytes == 8) {
      MINIDNN_UNROLL
      for (int i = 0; i < kWidth; i += 2)
        store_words(static_cast<int64_t*>(a.indices) + at + i,
                    {uint32_t(index[i]), sign(index[i]), uint32_t(index[i + 1]), sign(index[i + 1])});
    }
  }
  MINIDNN_HD void pool_down() {
    if constexpr (!kIsMax) pool_down_with<SumLanes<T>>();
    else if (s.index_bytes) pool_down_with<FirstLargestLanes<T>>();
    else pool_down_with<MaxLanes<T>>();
  }

  // The partial result of one team for a window and a vector of channels: maxima and their indices, or sums. Each
  // thread stores it to shared memory, where the partial results of the teams are `stride` apart. finish() joins them.
  struct Partial {
    float value[kWidth];
    int32_t index[kWidth];
  };
  MINIDNN_HD void find(int team, Partial& partial) const {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.divmod(rest), q = s.by_columns.divmod(rest), p = int(rest);
    const int r_begin = s.h.begin(p, 0), r_end = s.h.end(p, s.h.size);
    const int c_begin = s.w.begin(q, 0), c_end = s.w.end(q, s.w.size);
    Best best[kWidth];
    CompensatedSum<float> sum[kWidth];
    constexpr int kAtOnce = 4;
    for (int r = r_begin + team; r < r_end; r += s.teams) {
      const int line = s.h.first(p) + r * s.h.dilation;
      const T* from = x(vector) + line * s.x_line;
      for (int c = c_begin; c < c_end; c += kAtOnce) {
        // If fewer than kAtOnce columns remain, the last column is loaded several times. A branch would separate the
        // loads.
        Words v[kAtOnce];
        MINIDNN_UNROLL
        for (int k = 0; k < kAtOnce; ++k)
          v[k] = load_words(from + (s.w.first(q) + min_of(c + k, c_end - 1) * s.w.dilation) * s.x_column);
        float some[kWidth]{};
        MINIDNN_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          if (c + k >= c_end) break;
          const int index = line * s.w.size + s.w.first(q) + (c + k) * s.w.dilation;
          MINIDNN_UNROLL
          for (int i = 0; i < kWidth; ++i) {
            if constexpr (kIsMax) best[i].next(lane<T>(v[k], i), index);
            else some[i] += lane<T>(v[k], i);
          }
        }
        MINIDNN_UNROLL
        for (int i = 0; i < kWidth; ++i)
          if constexpr (!kIsMax) sum[i].add(some[i]);
      }
    }
    MINIDNN_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kIsMax) {
        partial.value[i] = best[i].value;
        partial.index[i] = best[i].index;
      } else partial.value[i] = sum[i].value();
    }
  }
  // Combines the partial results of all teams, and writes y. Only the first team calls this function.
  MINIDNN_HD void finish(const Partial* partials, int stride) const {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.divmod(rest), q = s.by_columns.divmod(rest), p = int(rest);
    const float scale = mean_factor(p, q);
    float out[kWidth];
    int32_t index[kWidth];
    MINIDNN_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kIsMax) {
        Best best;
        for (int team = 0; team < s.teams; ++team)
          best.join(partials[team * stride].value[i], partials[team * stride].index[i]);
        out[i] = best.value;
        index[i] = best.index == 0x7fffffff ? -1 : best.index;
      } else {
        float total = 0;
        for (int team = 0; team < s.teams; ++team) total += partials[team * stride].value[i];
        out[i] = total * scale;
      }
    }
    store_words(y(p, q, vector), words_of<T>(out));
    if constexpr (kIsMax) put_indices(p, q, vector, index);
  }
};

}  // namespace minidnn::cuda::pooling
