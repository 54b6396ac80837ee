// SPDX-License-Identifier: Apache-2.0
// Pooling where channels lie side by side (NHWC): a thread takes 16 bytes of them. Forward, threads of windows that the
// compiler knows walk down some lines of y and join the columns of a line of x once for all windows over it; of others,
// teams share a window where there are few. What windows have in common comes from the L1 or the L2 cache. Backward, a
// block takes a tile of dx: the windows over it find their maxima, or shares, into shared memory, then each dx adds up
// what they have for it.
#pragma once
#include "cuda/pooling/windows.h"

namespace minidnn::pooling {

struct Channels {
  Windows h, w;
  int64_t images;
  int64_t x_image, x_line, x_column, y_image, y_line, y_column, dx_image, dx_line, dx_column;  // strides; y is dy, too
  int64_t indices_image, indices_line, indices_column;
  int32_t vectors;  // of channels
  int32_t index_bytes, exclude_padding;
  int32_t down;  // of a window's size unknown to the compiler: a thread takes kDown of them below each other
  // Forward: threads of an image, and teams of a block.
  int32_t items, teams;
  Divisor by_vectors, by_columns;
  // Backward: a block's vectors, and its tile of dx and of windows.
  int32_t block_vectors, lines, columns, p_lines, q_columns;
  int32_t tiles;  // blocks of an image: [tile lines][tile columns][vector groups]
  Divisor by_vector_groups, by_tile_columns, by_block_vectors, by_q_columns, by_result_columns;
};

// Windows of a thread, and elements of dx, below each other: the registers hold maxima of so many, and their places.
MINIDNN_HD constexpr int down_of(int lanes) { return lanes == 4 ? 4 : 2; }
template <class T> constexpr int kDown = down_of(kLanes<T>);
constexpr int kStaticDown = 4;  // windows of a static size, forward
// Windows two apart have little in common, and a tile has too few of them for that.
template <class S, class T> constexpr int kFindsDown = S::stride > 1 ? 1 : kDown<T>;

// Calls put(d, what L finds in it) for the windows, without a dilation, at p + d, of kDown but before `p_end`: a line of
// x is gone through once, and what is found there joins all windows over it. place(line, column) is what L calls an
// element. kAtOnce loads are under way together: backward has registers for two.
template <class S, class L, int kAtOnce, class T, class Place, class Put>
MINIDNN_HD void each_down(const Channels& s, const T* x, int p, int p_end, int q, Place&& place, Put&& put) {
  if constexpr (S::window > 0) {
    constexpr int kTall = kFindsDown<S, T>;
    const int first = p * S::stride - s.h.before, column = q * S::stride - s.w.before, skipped = max_of(-column, 0);
    const bool some = skipped < S::window && column < s.w.size;
    const T* from = x + first * s.x_line + column * s.x_column;
    L found[kTall];
    MINIDNN_UNROLL
    for (int r = 0; r < (kTall - 1) * S::stride + S::window; ++r, from += s.x_line) {
      const bool in = uint32_t(first + r) < uint32_t(s.h.size);
      Words v[S::window];
      MINIDNN_UNROLL
      for (int c = 0; c < S::window; ++c)
        if (in && uint32_t(column + c) < uint32_t(s.w.size)) v[c] = load_words(from + c * s.x_column);
      L of_line;
      of_line.clear();
      of_line.begin(in && some ? place(first + r, column + skipped) : -1);
      MINIDNN_UNROLL
      for (int c = 0; c < S::window; ++c)
        if (in && uint32_t(column + c) < uint32_t(s.w.size)) of_line.next(v[c], place(first + r, column + c));
      MINIDNN_UNROLL
      for (int d = 0; d < kTall; ++d) {
        if (r == d * S::stride) found[d] = of_line;
        else if (d * S::stride < r && r < d * S::stride + S::window) found[d].join(of_line);
      }
    }
    MINIDNN_UNROLL
    for (int d = 0; d < kTall; ++d)
      if (p + d < p_end) put(d, found[d]);
    return;
  }
  const int windows = min_of(kDown<T>, p_end - p), first = s.h.first(p);
  const int begin = max_of(first, 0), end = min_of(first + (windows - 1) * s.h.stride + s.h.window, s.h.size);
  const int c_begin = max_of(s.w.first(q), 0), c_end = min_of(s.w.first(q) + s.w.window, s.w.size);
  const T* from = x + begin * s.x_line + c_begin * s.x_column;
  L found[kDown<T>];
  MINIDNN_UNROLL
  for (int d = 0; d < kDown<T>; ++d) found[d].clear();
  for (int line = begin; line < end; ++line, from += s.x_line) {
    const T* at = from;
    L of_line;
    of_line.clear();
    of_line.begin(c_begin < c_end ? place(line, c_begin) : -1);
    for (int c = c_begin; c < c_end; c += kAtOnce) {
      Words v[kAtOnce];
      MINIDNN_UNROLL
      for (int k = 0; k < kAtOnce; ++k, at += s.x_column)
        if (c + k < c_end) v[k] = load_words(at);
      MINIDNN_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (c + k < c_end) of_line.next(v[k], place(line, c + k));
    }
    MINIDNN_UNROLL
    for (int d = 0; d < kDown<T>; ++d)
      if (uint32_t(line - first - d * s.h.stride) < uint32_t(s.h.window)) found[d].join(of_line);
  }
  MINIDNN_UNROLL
  for (int d = 0; d < kDown<T>; ++d)
    if (d < windows) put(d, found[d]);
}

template <class T, bool is_max, class S> struct ChannelsForward {
  static constexpr int kDown = kStaticDown, kWidth = kLanes<T>;
  const Channels& s;
  const PoolingArgs& a;
  int64_t image;
  int item;  // a thread's, or a team member's

  MINIDNN_HD const T* x(int vector) const { return static_cast<const T*>(a.x) + image * s.x_image + vector * kWidth; }
  MINIDNN_HD T* y(int p, int q, int vector) const {
    return static_cast<T*>(a.out) + image * s.y_image + p * s.y_line + q * s.y_column + vector * kWidth;
  }
  MINIDNN_HD float share(int p, int q) const { return is_max ? 1.f : share_of<S>(s.h, s.w, p, q, s.exclude_padding); }
  template <class L> MINIDNN_HD void walk() {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.digit(rest), q = s.by_columns.digit(rest), p = int(rest) * kDown;
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
      store_words(y(p + d, q, vector), total.result(share(p + d, q)));
    }
  }
  MINIDNN_HD void pool() {
    if constexpr (is_max) walk<MaxLanes<T>>();
    else walk<SumLanes<T>>();
  }

  template <class L> MINIDNN_HD void walk_down() {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.digit(rest), q = s.by_columns.digit(rest), p = int(rest) * pooling::kDown<T>;
    each_down<S, L, 4>(
        s, x(vector), p, s.h.count, q, [&](int line, int column) { return line * s.w.size + column; },
        [&](int d, const L& found) {
          store_words(y(p + d, q, vector), found.result(share(p + d, q)));
          if constexpr (L::has_places) {
            int32_t place[kWidth];
            MINIDNN_UNROLL
            for (int i = 0; i < kWidth; ++i) place[i] = found.of[i].place;
            put_indices(p + d, q, vector, place);
          }
        });
  }
  // Two at a time, so that an int64's go by 16 bytes too.
  MINIDNN_HD void put_indices(int p, int q, int vector, const int32_t (&place)[kWidth]) const {
    const int64_t at = image * s.indices_image + p * s.indices_line + q * s.indices_column + vector * kWidth;
    auto sign = [](int32_t v) { return uint32_t(v >> 31); };
    if (s.index_bytes == 4) {
      MINIDNN_UNROLL
      for (int i = 0; i < kWidth; i += 4)
        store_words(static_cast<int32_t*>(a.indices) + at + i,
                    {uint32_t(place[i]), uint32_t(place[i + 1]), uint32_t(place[i + 2]), uint32_t(place[i + 3])});
    } else if (s.index_bytes == 8) {
      MINIDNN_UNROLL
      for (int i = 0; i < kWidth; i += 2)
        store_words(static_cast<int64_t*>(a.indices) + at + i,
                    {uint32_t(place[i]), sign(place[i]), uint32_t(place[i + 1]), sign(place[i + 1])});
    }
  }
  MINIDNN_HD void pool_down() {
    if constexpr (!is_max) walk_down<SumLanes<T>>();
    else if (s.index_bytes) walk_down<FirstLargestLanes<T>>();
    else walk_down<MaxLanes<T>>();
  }

  // One team's part of a window, to places of its own in `room`: a maximum and where it is, or a sum. The other teams'
  // follow `apart` further on each.
  struct Part {
    float value[kWidth];
    int32_t place[kWidth];
  };
  MINIDNN_HD void find(int team, Part& part) const {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.digit(rest), q = s.by_columns.digit(rest), p = int(rest);
    const int r_begin = s.h.begin(p, 0), r_end = s.h.end(p, s.h.size);
    const int c_begin = s.w.begin(q, 0), c_end = s.w.end(q, s.w.size);
    Best best[kWidth];
    CarefulSum<float> sum[kWidth];
    for (int r = r_begin + team; r < r_end; r += s.teams) {
      const int line = s.h.first(p) + r * s.h.dilation;
      const T* from = x(vector) + line * s.x_line;
      MINIDNN_UNROLL_4
      for (int c = c_begin; c < c_end; ++c) {
        const int column = s.w.first(q) + c * s.w.dilation;
        const Words v = load_words(from + column * s.x_column);
        MINIDNN_UNROLL
        for (int i = 0; i < kWidth; ++i) {
          if constexpr (is_max) best[i].next(lane<T>(v, i), line * s.w.size + column);
          else sum[i].add(lane<T>(v, i));
        }
      }
    }
    MINIDNN_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (is_max) part.value[i] = best[i].value, part.place[i] = best[i].place;
      else part.value[i] = sum[i].value();
    }
  }
  // What the teams found, by the first of them.
  MINIDNN_HD void finish(const Part* parts, int apart) const {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.digit(rest), q = s.by_columns.digit(rest), p = int(rest);
    const float scale = share(p, q);
    float out[kWidth];
    int32_t place[kWidth];
    MINIDNN_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (is_max) {
        Best best;
        for (int team = 0; team < s.teams; ++team)
          best.join(parts[team * apart].value[i], parts[team * apart].place[i]);
        out[i] = best.value, place[i] = best.place == 0x7fffffff ? -1 : best.place;
      } else {
        float total = 0;
        for (int team = 0; team < s.teams; ++team) total += parts[team * apart].value[i];
        out[i] = total * scale;
      }
    }
    store_words(y(p, q, vector), words_of<T>(out));
    if constexpr (is_max) put_indices(p, q, vector, place);
  }
};

template <class T, bool is_max, class S> struct ChannelsBackward {
  static constexpr int kWidth = kLanes<T>;
  const Channels& s;
  const PoolingArgs& a;
  int64_t image;
  unsigned char* room;
  Thread t;
  // The tile.
  int first_vector, vectors, h_begin, h_end, w_begin, w_end, p_begin, p_end, q_begin, q_end;

  // Windows' keys or shares: [window lines][window columns][vectors][lanes of 16 bits or of floats].
  struct Keys {
    uint16_t of[kWidth];
  };
  struct Shares {
    float of[kWidth];
  };
  MINIDNN_HD Keys* keys() const { return reinterpret_cast<Keys*>(room); }
  MINIDNN_HD Shares* shares() const { return reinterpret_cast<Shares*>(room); }

  MINIDNN_HD void choose(int tile) {
    uint32_t rest = uint32_t(tile);
    first_vector = s.by_vector_groups.digit(rest) * s.block_vectors;
    vectors = min_of(s.block_vectors, s.vectors - first_vector);
    w_begin = s.by_tile_columns.digit(rest) * s.columns, w_end = min_of(w_begin + s.columns, s.w.size);
    h_begin = int(rest) * s.lines, h_end = min_of(h_begin + s.lines, s.h.size);
    p_begin = s.h.over_begin(h_begin), p_end = max_of(s.h.over_end(h_end - 1), p_begin);
    q_begin = s.w.over_begin(w_begin), q_end = max_of(s.w.over_end(w_end - 1), q_begin);
  }
  MINIDNN_HD Words dy(int p, int q, int vector) const {
    return load_words(static_cast<const T*>(a.dy) + image * s.y_image + p * s.y_line + q * s.y_column +
                      (first_vector + vector) * kWidth);
  }
  MINIDNN_HD uint32_t key_of(int line, int column) const {
    const bool here = h_begin <= line && line < h_end && w_begin <= column && column < w_end;
    return here ? uint32_t((line - h_begin) * s.columns + column - w_begin) : kNowhere;
  }

  MINIDNN_HD void find() {
    if constexpr (is_max)
      if (S::window > 0 || (s.down && s.index_bytes == 0)) return find_down();
    // Numbered as if the tile were whole, so that divisors are known.
    const int n = (p_end - p_begin) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest), q = q_begin + s.by_q_columns.digit(rest);
      const int p = p_begin + int(rest);
      if (vector >= vectors || q >= q_end) continue;
      if constexpr (!is_max) {
        const Words v = dy(p, q, vector);
        const float scale = share_of<S>(s.h, s.w, p, q, s.exclude_padding);
        Shares share;
        MINIDNN_UNROLL
        for (int k = 0; k < kWidth; ++k) share.of[k] = lane<T>(v, k) * scale;
        shares()[i] = share;
      } else {
        keys()[i] = s.index_bytes ? given(p, q, vector) : maximum(p, q, vector);
      }
    }
  }
  MINIDNN_HD Keys given(int p, int q, int vector) const {
    const int64_t at =
        image * s.indices_image + p * s.indices_line + q * s.indices_column + (first_vector + vector) * kWidth;
    Keys key;
    Words two{};
    MINIDNN_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      int64_t index;
      if (s.index_bytes == 8) {
        if (k % 2 == 0) two = load_words(static_cast<const int64_t*>(a.indices) + at + k);
        index = int64_t(uint64_t(two.word[k % 2 * 2]) | uint64_t(two.word[k % 2 * 2 + 1]) << 32);
      } else {
        index = static_cast<const int32_t*>(a.indices)[at + k];
      }
      bool in = 0 <= index && index < int64_t(s.h.size) * s.w.size;
      // All of a window's indices are near each other: a line's number is found by multiplication.
      uint32_t rest = in ? uint32_t(index) : 0;
      const int column = s.by_result_columns.digit(rest);
      // gather_down() does not ask whether an index is in its window.
      if (S::window == 0 && s.down)
        in = in && uint32_t(int(rest) - s.h.first(p)) < uint32_t(s.h.window) &&
             uint32_t(column - s.w.first(q)) < uint32_t(s.w.window);
      key.of[k] = uint16_t(in ? key_of(int(rest), column) : kNowhere);
    }
    return key;
  }
  MINIDNN_HD Keys maximum(int p, int q, int vector) const {
    const T* x = static_cast<const T*>(a.x) + image * s.x_image + (first_vector + vector) * kWidth;
    float best[kWidth];
    uint32_t key[kWidth];
    MINIDNN_UNROLL
    for (int k = 0; k < kWidth; ++k) best[k] = -INFINITY, key[k] = kNowhere;
    bool first = true;
    auto next = [&](const Words& v, uint32_t here) {
      MINIDNN_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        const float u = lane<T>(v, k);
        const bool take = first || (!(u <= best[k]) && best[k] == best[k]);
        best[k] = take ? u : best[k], key[k] = take ? here : key[k];
      }
      first = false;
    };
    const int r_end = s.h.end(p, s.h.size), c_begin = s.w.begin(q, 0), c_end = s.w.end(q, s.w.size);
    for (int r = s.h.begin(p, 0); r < r_end; ++r) {
      const int line = s.h.first(p) + r * s.h.dilation;
      MINIDNN_UNROLL_4
      for (int c = c_begin; c < c_end; ++c) {
        const int column = s.w.first(q) + c * s.w.dilation;
        next(load_words(x + line * s.x_line + column * s.x_column), key_of(line, column));
      }
    }
    Keys found;
    MINIDNN_UNROLL
    for (int k = 0; k < kWidth; ++k) found.of[k] = uint16_t(key[k]);
    return found;
  }

  MINIDNN_HD void find_down() {
    const int n = ceil_div(p_end - p_begin, kFindsDown<S, T>) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest), q = q_begin + s.by_q_columns.digit(rest);
      const int p = p_begin + int(rest) * kFindsDown<S, T>;
      if (vector >= vectors || q >= q_end) continue;
      each_down<S, FirstLargestLanes<T>, 2>(
          s, static_cast<const T*>(a.x) + image * s.x_image + (first_vector + vector) * kWidth, p, p_end, q,
          [&](int line, int column) { return int(key_of(line, column)); },
          [&](int d, const FirstLargestLanes<T>& found) {
            Keys key;
            MINIDNN_UNROLL
            for (int k = 0; k < kWidth; ++k) key.of[k] = uint16_t(found.of[k].place);  // none is kNowhere
            keys()[((p + d - p_begin) * s.q_columns + q - q_begin) * s.block_vectors + vector] = key;
          });
    }
  }

  // A window's part in the sums of one dx.
  MINIDNN_HD void add(float (&sum)[kWidth], uint32_t key, const Keys& found, const Words& v) const {
    MINIDNN_UNROLL
    for (int k = 0; k < kWidth; ++k)
      if (found.of[k] == key) sum[k] += lane<T>(v, k);
  }
  MINIDNN_HD void put(int line, int column, int vector, const float (&sum)[kWidth]) const {
    store_words(static_cast<T*>(a.out) + image * s.dx_image + line * s.dx_line + column * s.dx_column +
                    (first_vector + vector) * kWidth,
                words_of<T>(sum));
  }
  // Of a thread some dx below each other: a window's key tells which of them it is for, and its line which share it.
  MINIDNN_HD void gather_down() {
    const int n = ceil_div(h_end - h_begin, kDown<T>) * s.columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest);
      const int line = h_begin + int(rest) / s.columns * kDown<T>, column = w_begin + int(rest) % s.columns;
      if (vector >= vectors || column >= w_end) continue;
      const int results = min_of(kDown<T>, h_end - line);
      const int to_p = s.h.over_end(line + results - 1), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
      const uint32_t key = key_of(line, column);
      float sum[kDown<T>][kWidth]{};
      for (int p = s.h.over_begin(line); p < to_p; ++p) {
        const int reach = line - s.h.first(p);
        const int window = ((p - p_begin) * s.q_columns - q_begin) * s.block_vectors + vector;
        if constexpr (is_max) {
          MINIDNN_UNROLL_4
          for (int q = from_q; q < to_q; ++q) {
            const Words v = dy(p, q, vector);
            const Keys found = keys()[window + q * s.block_vectors];
            MINIDNN_UNROLL
            for (int d = 0; d < kDown<T>; ++d) add(sum[d], key + uint32_t(d * s.columns), found, v);
          }
        } else {
          float of_line[kWidth]{};
          MINIDNN_UNROLL_4
          for (int q = from_q; q < to_q; ++q) {
            const Shares share = shares()[window + q * s.block_vectors];
            MINIDNN_UNROLL
            for (int k = 0; k < kWidth; ++k) of_line[k] += share.of[k];
          }
          MINIDNN_UNROLL
          for (int d = 0; d < kDown<T>; ++d)
            if (uint32_t(reach + d) < uint32_t(s.h.window)) MINIDNN_UNROLL
          for (int k = 0; k < kWidth; ++k) sum[d][k] += of_line[k];
        }
      }
      MINIDNN_UNROLL
      for (int d = 0; d < kDown<T>; ++d)
        if (d < results) put(line + d, column, vector, sum[d]);
    }
  }
  MINIDNN_HD void gather() {
    if constexpr (S::window == 0)
      if (s.down) return gather_down();
    if constexpr (S::window > 0) {
      // A thread takes the dx between two steps of the windows, which the same windows lie over; of steps of one, some
      // below each other.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kStride = S::stride;
      constexpr int kSteps = kStride == 1 ? kDown<T> : 1, kTall = kSteps * kStride;
      const int first_line = (h_begin + s.h.before) / kStride, first_column = (w_begin + s.w.before) / kStride;
      const int tile_lines = ((h_end - 1 + s.h.before) / kStride - first_line) / kSteps + 1;
      const int columns = s.columns / kStride + 1, n = tile_lines * columns * s.block_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_block_vectors.digit(rest);
        const int tile_q = first_column + s.by_result_columns.digit(rest), tile_p = first_line + int(rest) * kSteps;
        const int line = tile_p * kStride - s.h.before, column = tile_q * kStride - s.w.before;
        if (vector >= vectors || column >= w_end) continue;
        float sum[kTall][kStride][kWidth]{};
        MINIDNN_UNROLL
        for (int up = kOver - 1; up > -kSteps; --up) {
          const int p = tile_p - up;
          float of_line[kStride][kWidth]{};
          MINIDNN_UNROLL
          for (int left = kOver - 1; left >= 0; --left) {
            const int q = tile_q - left;
            if (p < p_begin || p >= p_end || q < q_begin || q >= q_end) continue;
            const int window = ((p - p_begin) * s.q_columns + q - q_begin) * s.block_vectors + vector;
            if constexpr (is_max) {
              const Words v = dy(p, q, vector);
              const Keys found = keys()[window];
              MINIDNN_UNROLL
              for (int j = 0; j < kTall; ++j) MINIDNN_UNROLL
              for (int k = 0; k < kStride; ++k)
                if (uint32_t(up * kStride + j) < uint32_t(S::window) && left * kStride + k < S::window)
                  add(sum[j][k], key_of(line + j, column + k), found, v);
            } else {
              const Shares share = shares()[window];
              MINIDNN_UNROLL
              for (int k = 0; k < kStride; ++k)
                if (left * kStride + k < S::window) MINIDNN_UNROLL
              for (int m = 0; m < kWidth; ++m) of_line[k][m] += share.of[m];
            }
          }
          if constexpr (!is_max) MINIDNN_UNROLL
          for (int j = 0; j < kTall; ++j)
            if (uint32_t(up * kStride + j) < uint32_t(S::window)) MINIDNN_UNROLL
          for (int k = 0; k < kStride; ++k) MINIDNN_UNROLL
          for (int m = 0; m < kWidth; ++m) sum[j][k][m] += of_line[k][m];
        }
        MINIDNN_UNROLL
        for (int j = 0; j < kTall; ++j) MINIDNN_UNROLL
        for (int k = 0; k < kStride; ++k) {
          const int h = line + j, w = column + k;
          if (h >= h_begin && h < h_end && w >= w_begin && w < w_end) put(h, w, vector, sum[j][k]);
        }
      }
    } else {
      const int n = (h_end - h_begin) * s.columns * s.block_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_block_vectors.digit(rest);
        const int line = h_begin + int(rest) / s.columns, column = w_begin + int(rest) % s.columns;
        if (vector >= vectors || column >= w_end) continue;
        const int to_p = s.h.over_end(line), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
        const uint32_t key = key_of(line, column);
        CarefulSum<float> sum[kWidth];
        for (int p = s.h.over_begin(line); p < to_p; ++p) {
          if (s.h.dilation > 1 && (line - s.h.first(p)) % s.h.dilation) continue;
          for (int q = from_q; q < to_q; ++q) {
            if (s.w.dilation > 1 && (column - s.w.first(q)) % s.w.dilation) continue;
            const int window = ((p - p_begin) * s.q_columns + q - q_begin) * s.block_vectors + vector;
            if constexpr (is_max) {
              const Keys found = keys()[window];
              const Words v = dy(p, q, vector);
              MINIDNN_UNROLL
              for (int k = 0; k < kWidth; ++k)
                if (found.of[k] == key) sum[k].add(lane<T>(v, k));
            } else {
              const Shares share = shares()[window];
              MINIDNN_UNROLL
              for (int k = 0; k < kWidth; ++k) sum[k].add(share.of[k]);
            }
          }
        }
        float out[kWidth];
        MINIDNN_UNROLL
        for (int k = 0; k < kWidth; ++k) out[k] = sum[k].value();
        put(line, column, vector, out);
      }
    }
  }
};

}  // namespace minidnn::pooling
