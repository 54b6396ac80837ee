// SPDX-License-Identifier: Apache-2.0
// Pooling where channels lie side by side (NHWC). Forward, a thread walks down some lines of y, 16 bytes of channels each,
// or takes a tile of windows of a word of channels; where there are few windows, teams share each. What windows have in
// common comes from the L1 or the L2 cache. Backward, maxima of windows that the compiler knows go by strips. Else a block
// takes a tile of dx: the windows over it find their maxima, or shares, into shared memory. A maximum's gradient is added
// to its dx there, by windows at once that do not overlap; of shares, each dx adds up what the windows over it have.
#pragma once
#include "cuda/pooling/strips.h"

namespace minidnn::pooling {

struct Channels {
  Windows h, w;
  int64_t images;
  int64_t x_image, x_line, x_column, y_image, y_line, y_column, dx_image, dx_line, dx_column;  // strides; y is dy, too
  int64_t indices_image, indices_line, indices_column;
  int32_t vectors;  // of channels
  int32_t index_bytes, exclude_padding;
  int32_t down;  // of a window's size unknown to the compiler: a thread takes kDown of them below each other
  // Threads of an image, and teams of a block: forward, and backward where a thread takes a tile of dx from dy alone.
  int32_t items, teams;
  Divisor by_vectors, by_words, by_channels, by_columns;
  // Backward: a block's vectors, and its tile of dx and of windows; or the lines of a strip.
  int32_t block_vectors, lines, columns, p_lines, q_columns;
  int32_t scatter;           // windows add to dx; else each dx asks the windows over it
  int32_t apart_h, apart_w;  // windows so far apart do not overlap
  int32_t dy_at, keys_at;    // in shared memory, after dx
  Divisor by_vector_groups, by_tile_columns, by_block_vectors, by_block_channels;
  Divisor by_q_columns, by_q_apart, by_result_columns, by_line, by_tile_width;
  float share;  // of each element in a mean, if all windows count alike; else 0
};

// Windows of a thread, and elements of dx, below each other: the registers hold maxima of so many, and their places.
MINIDNN_HD constexpr int down_of(int lanes) { return lanes == 4 ? 4 : 2; }
template <class T> constexpr int kDown = down_of(kLanes<T>);
constexpr int kStaticDown = 4;  // windows of a static size, forward
// Of windows of a static size: columns of a thread's tile of a word. Those two apart have little in common.
MINIDNN_HD constexpr int across_of(int stride) { return stride > 1 ? 1 : 2; }
template <class S> constexpr int kAcross = across_of(S::stride);
constexpr int kStripThreads = 128;  // of a block
// Steps that a strip of dx is wide, and blocks of them on an SM: what its registers hold. Wide strips look less beyond
// their sides.
MINIDNN_HD constexpr int strip_steps(int window, int stride, bool given) {
  return given || stride > 1 ? 4 : window > 3 ? 8 : 7;
}
MINIDNN_HD constexpr int strip_blocks(int window, int stride, bool given) {
  return given || stride > 1 ? 4 : window > 3 ? 2 : 3;
}
// Whether forward a tile of words does better than a walk by vectors, which have too many sums, or windows in common.
MINIDNN_HD constexpr bool takes_words(bool is_max, int window) { return !is_max || window > 3; }

// Calls put(d, what L finds in it) for the windows, without a dilation, at p + d, of kDown but before `p_end`: a line of
// x is gone through once, and what is found there joins all windows over it. place(line, column) is what L calls an
// element. kAtOnce loads are under way together: backward has registers for two.
template <class L, int kAtOnce, class T, class Place, class Put>
MINIDNN_HD void each_down(const Channels& s, const T* x, int p, int p_end, int q, Place&& place, Put&& put) {
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

// An image by words of channels, in less than 2^31 elements: an offset of 32 bits spares half of an address's arithmetic.
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
  MINIDNN_HD float share(int p, int q) const { return is_max ? 1.f : share_of<S>(s, p, q); }
  MINIDNN_HD void walk() {
    using L = MaxLanes<T>;
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
  // Of a word of channels, by offsets in an image of 32 bits; item(word, its place) is what R makes of a word of x, and
  // put(found, p, q, word) takes what it finds.
  template <class R, class Item, class Put> MINIDNN_HD void pool_tile(Item&& item_of, Put&& put) {
    constexpr int kWide = kAcross<S>;
    uint32_t rest = uint32_t(item);
#ifdef __CUDA_ARCH__
    // Else the compiler finds the addresses of all that a kernel may do before it asks what to do, and runs out of
    // registers.
    asm volatile("" : "+r"(rest));
#endif
    const int word = s.by_words.digit(rest), q = s.by_columns.digit(rest) * kWide, p = int(rest) * kDown;
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
    pool_tile<R>([&](uint32_t word, int place) { return R::item(lanes_in<T>(word), place); },
                 [&](const typename R::Item& found, int p, int q, int word) {
                   Lanes<n> out;
                   const int64_t at =
                       image * s.indices_image + (p * int(s.indices_line) + q * int(s.indices_column) + word * n);
                   MINIDNN_UNROLL
                   for (int i = 0; i < n; ++i) {
                     out.of[i] = found.of[i];
                     const int place = found.place[i];
                     if (s.index_bytes == 8) static_cast<int64_t*>(a.indices)[at + i] = place;
                     else static_cast<int32_t*>(a.indices)[at + i] = place;
                   }
                   put_word(p, q, word, word_of_lanes<T>(out));
                 });
  }
  MINIDNN_HD void pool() {
    if constexpr (!is_max) {
      constexpr int n = kInWord<T>;
      pool_tile<Sums<n>>([&](uint32_t word, int) { return lanes_in<T>(word); },
                         [&](Lanes<n> sum, int p, int q, int word) {
                           MINIDNN_UNROLL
                           for (int i = 0; i < n; ++i) sum.of[i] *= share(p, q);
                           put_word(p, q, word, word_of_lanes<T>(sum));
                         });
    } else if (s.index_bytes) {
      pool_with_indices();
    } else if constexpr (takes_words(is_max, S::window)) {
      pool_tile<WordMaxima<T>>([&](uint32_t word, int) { return word; },
                               [&](uint32_t found, int p, int q, int word) { put_word(p, q, word, found); });
    } else {
      walk();
    }
  }

  template <class L> MINIDNN_HD void walk_down() {
    uint32_t rest = uint32_t(item);
    const int vector = s.by_vectors.digit(rest), q = s.by_columns.digit(rest), p = int(rest) * pooling::kDown<T>;
    each_down<L, 4>(
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
    constexpr int kAtOnce = 4;
    for (int r = r_begin + team; r < r_end; r += s.teams) {
      const int line = s.h.first(p) + r * s.h.dilation;
      const T* from = x(vector) + line * s.x_line;
      for (int c = c_begin; c < c_end; c += kAtOnce) {
        // The last again beyond it: a condition would keep loads from being under way together.
        Words v[kAtOnce];
        MINIDNN_UNROLL
        for (int k = 0; k < kAtOnce; ++k)
          v[k] = load_words(from + (s.w.first(q) + min_of(c + k, c_end - 1) * s.w.dilation) * s.x_column);
        float some[kWidth]{};
        MINIDNN_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          if (c + k >= c_end) break;
          const int place = line * s.w.size + s.w.first(q) + (c + k) * s.w.dilation;
          MINIDNN_UNROLL
          for (int i = 0; i < kWidth; ++i) {
            if constexpr (is_max) best[i].next(lane<T>(v[k], i), place);
            else some[i] += lane<T>(v[k], i);
          }
        }
        MINIDNN_UNROLL
        for (int i = 0; i < kWidth; ++i)
          if constexpr (!is_max) sum[i].add(some[i]);
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

  // In shared memory. Where windows add to dx: sums [lines][columns][channels], then dy and keys [window lines][window
  // columns][channels]; else keys or shares alone.
  struct Keys {
    uint16_t of[kWidth];
  };
  struct Shares {
    float of[kWidth];
  };
  MINIDNN_HD float* sums() const { return reinterpret_cast<float*>(room); }
  MINIDNN_HD T* dy_here() const { return reinterpret_cast<T*>(room + s.dy_at); }
  MINIDNN_HD Keys* keys() const { return reinterpret_cast<Keys*>(room + s.keys_at); }
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
  MINIDNN_HD const T* dy_at(int p, int q, int vector) const {
    return static_cast<const T*>(a.dy) + image * s.y_image + p * s.y_line + q * s.y_column +
           (first_vector + vector) * kWidth;
  }
  MINIDNN_HD Words dy(int p, int q, int vector) const { return load_words(dy_at(p, q, vector)); }
  MINIDNN_HD uint32_t key_of(int line, int column) const {
    const bool here = h_begin <= line && line < h_end && w_begin <= column && column < w_end;
    return here ? uint32_t((line - h_begin) * s.columns + column - w_begin) : kNowhere;
  }

  MINIDNN_HD void find() {
    if constexpr (is_max && S::window == 0)
      if (s.down && s.index_bytes == 0) return find_down();
    // Numbered as if the tile were whole, so that divisors are known.
    const int n = (p_end - p_begin) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest), q = q_begin + s.by_q_columns.digit(rest);
      const int p = p_begin + int(rest);
      if (vector >= vectors || q >= q_end) continue;
      if constexpr (!is_max) {
        const Words v = dy(p, q, vector);
        const float scale = share_of<S>(s, p, q);
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
      uint32_t index, beyond = 0;  // 32 bits
      if (s.index_bytes == 8) {
        if (k % 2 == 0) two = load_words(static_cast<const int64_t*>(a.indices) + at + k);
        index = two.word[k % 2 * 2], beyond = two.word[k % 2 * 2 + 1];
      } else {
        index = uint32_t(static_cast<const int32_t*>(a.indices)[at + k]);
      }
      bool in = beyond == 0 && index < uint32_t(s.h.size) * uint32_t(s.w.size);
      // All of a window's indices are near each other: a line's number is found by multiplication.
      uint32_t rest = in ? index : 0;
      const int column = s.by_line.digit(rest);
      // scatter() does not ask whether an index is in its window.
      if (s.scatter)
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
    const int n = ceil_div(p_end - p_begin, kDown<T>) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest), q = q_begin + s.by_q_columns.digit(rest);
      const int p = p_begin + int(rest) * kDown<T>;
      if (vector >= vectors || q >= q_end) continue;
      each_down<FirstLargestLanes<T>, 2>(
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

  // dy to shared memory, at hand after a barrier, and zeros to the sums.
  MINIDNN_HD void load() {
    const int n = (p_end - p_begin) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest), q = q_begin + s.by_q_columns.digit(rest);
      if (vector < vectors && q < q_end) copy_vector(dy_here() + i * kWidth, dy_at(p_begin + int(rest), q, vector));
    }
    clear_words(t, sums(), s.lines * s.columns * s.block_vectors * kWidth / 4);
  }
  // Corners of windows `apart` from each other: in a turn of its own, each of those that are so many down and across from
  // them adds to one dx, and no other has the same.
  MINIDNN_HD int corners() const {
    return ceil_div(p_end - p_begin, s.apart_h) * int(s.by_q_apart.divisor) * s.block_vectors * kWidth;
  }
  MINIDNN_HD void scatter(int corner, int down, int across) const {
    const int channels = s.block_vectors * kWidth;
    uint32_t rest = uint32_t(corner);
    const int channel = s.by_block_channels.digit(rest), q = s.by_q_apart.digit(rest) * s.apart_w;
    const int line = int(rest) * s.apart_h;
    if (corner >= corners() || channel >= vectors * kWidth) return;
    if (across >= q_end - q_begin - q || down >= p_end - p_begin - line) return;
    const int window = (line * s.q_columns + q) * channels + channel + (down * s.q_columns + across) * channels;
    const uint32_t key = keys()[0].of[window];
    if (key != kNowhere) sums()[int(key) * channels + channel] += float(dy_here()[window]);
  }
  MINIDNN_HD void store() const {
    const int n = (h_end - h_begin) * s.columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest);
      const int column = w_begin + s.by_tile_width.digit(rest), line = h_begin + int(rest);
      if (vector < vectors && column < w_end)
        store_words(dx_at(line, column, vector), words_of_sums<T>(sums() + i * kWidth));
    }
  }
  MINIDNN_HD T* dx_at(int line, int column, int vector) const {
    return static_cast<T*>(a.out) + image * s.dx_image + line * s.dx_line + column * s.dx_column +
           (first_vector + vector) * kWidth;
  }
  MINIDNN_HD void put(int line, int column, int vector, const float (&sum)[kWidth]) const {
    store_words(dx_at(line, column, vector), words_of<T>(sum));
  }
  // Averages at a stride of 1: what windows have for a dx is a window of them, of a word of channels here.
  MINIDNN_HD void pool_shares(int item) const {
    if (s.share != 0) pool_shares(item, s.share, [](int, int) { return 1.f; });
    else pool_shares(item, 1.f, [&](int p, int q) { return share_of<S>(s, p, q); });
  }
  template <class ShareOf> MINIDNN_HD void pool_shares(int item, float scale, ShareOf&& share_at) const {
    constexpr int kTall = kStaticDown, kWide = kAcross<S>, n = kInWord<T>;
    uint32_t rest = uint32_t(item);
    const int word = s.by_words.digit(rest), column = s.by_columns.digit(rest) * kWide, line = int(rest) * kTall;
    const WordsOf<T> dy(static_cast<const T*>(a.dy) + image * s.y_image, s.y_line, s.y_column);
    T* to = static_cast<T*>(a.out) + image * s.dx_image + word * n;
    const Span h{line + s.h.before - (S::window - 1), 0, s.h.count},
        w{column + s.w.before - (S::window - 1), 0, s.w.count};
    Lanes<n> sum[kTall][kWide];
    join_tile<S, Sums<n>>(
        h, w,
        [&](int r, int c, bool exists) {
          const int p = h.nearest(r), q = w.nearest(c);
          Lanes<n> v = lanes_in<T>(dy.at(p, q, word, exists));
          const float share = share_at(p, q);
          MINIDNN_UNROLL
          for (int i = 0; i < n; ++i) v.of[i] *= share;
          return v;
        },
        sum);
    MINIDNN_UNROLL
    for (int d = 0; d < kTall; ++d) {
      MINIDNN_UNROLL
      for (int k = 0; k < kWide; ++k)
        if (line + d < s.h.size && column + k < s.w.size) {
          MINIDNN_UNROLL
          for (int i = 0; i < n; ++i) sum[d][k].of[i] *= scale;
          *reinterpret_cast<uint32_t*>(to + (line + d) * int(s.dx_line) + (column + k) * int(s.dx_column)) =
              word_of_lanes<T>(sum[d][k]);
        }
    }
  }
  // Of a thread some dx below each other: a line of windows is added up once for all of them.
  MINIDNN_HD void gather_down() {
    const int n = ceil_div(h_end - h_begin, kDown<T>) * s.columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.digit(rest);
      const int line = h_begin + int(rest) / s.columns * kDown<T>, column = w_begin + int(rest) % s.columns;
      if (vector >= vectors || column >= w_end) continue;
      const int results = min_of(kDown<T>, h_end - line);
      const int to_p = s.h.over_end(line + results - 1), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
      float sum[kDown<T>][kWidth]{};
      for (int p = s.h.over_begin(line); p < to_p; ++p) {
        const int reach = line - s.h.first(p);
        const int window = ((p - p_begin) * s.q_columns - q_begin) * s.block_vectors + vector;
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
      MINIDNN_UNROLL
      for (int d = 0; d < kDown<T>; ++d)
        if (d < results) put(line + d, column, vector, sum[d]);
    }
  }
  MINIDNN_HD void gather() {
    if constexpr (S::window == 0 && !is_max)
      if (s.down) return gather_down();
    if constexpr (S::window > 0) {
      // A thread takes the dx between two steps of the windows, which the same windows lie over.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kStride = S::stride;
      const int first_line = (h_begin + s.h.before) / kStride, first_column = (w_begin + s.w.before) / kStride;
      const int tile_lines = (h_end - 1 + s.h.before) / kStride - first_line + 1;
      const int columns = s.columns / kStride + 1, n = tile_lines * columns * s.block_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_block_vectors.digit(rest);
        const int tile_q = first_column + s.by_result_columns.digit(rest), tile_p = first_line + int(rest);
        const int line = tile_p * kStride - s.h.before, column = tile_q * kStride - s.w.before;
        if (vector >= vectors || column >= w_end) continue;
        float sum[kStride][kStride][kWidth]{};
        MINIDNN_UNROLL
        for (int up = kOver - 1; up >= 0; --up) {
          const int p = tile_p - up;
          float of_line[kStride][kWidth]{};
          MINIDNN_UNROLL
          for (int left = kOver - 1; left >= 0; --left) {
            const int q = tile_q - left;
            if (p < p_begin || p >= p_end || q < q_begin || q >= q_end) continue;
            const Shares share = shares()[((p - p_begin) * s.q_columns + q - q_begin) * s.block_vectors + vector];
            MINIDNN_UNROLL
            for (int k = 0; k < kStride; ++k)
              if (left * kStride + k < S::window) MINIDNN_UNROLL
            for (int m = 0; m < kWidth; ++m) of_line[k][m] += share.of[m];
          }
          MINIDNN_UNROLL
          for (int j = 0; j < kStride; ++j)
            if (up * kStride + j < S::window) MINIDNN_UNROLL
          for (int k = 0; k < kStride; ++k) MINIDNN_UNROLL
          for (int m = 0; m < kWidth; ++m) sum[j][k][m] += of_line[k][m];
        }
        MINIDNN_UNROLL
        for (int j = 0; j < kStride; ++j) MINIDNN_UNROLL
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

// A strip of dx, of one channel, where the compiler knows the windows.
template <class T, class S, bool kGiven> struct ChannelsStrip {
  using Strip = pooling::Strip<S, strip_steps(S::window, S::stride, kGiven), true>;
  const Channels& s;
  const PoolingArgs& a;
  int64_t image;

  template <class I> MINIDNN_HD auto indices(const Strip& strip, int channel) const {
    return strip.y(static_cast<const I*>(a.indices) + image * s.indices_image + channel, s.indices_line,
                   s.indices_column);
  }
  MINIDNN_HD void pool(int item) const {
    uint32_t rest = uint32_t(item);
    const int channel = s.by_channels.digit(rest);
    const int column = s.by_columns.digit(rest) * Strip::kColumns - s.w.before % S::stride;
    const int begin = int(rest) * s.lines - s.h.before % S::stride;
    const Strip strip{s.h, s.w, begin, min_of(begin + s.lines, s.h.size), column};
    const auto dy = strip.y(static_cast<const T*>(a.dy) + image * s.y_image + channel, s.y_line, s.y_column);
    T* const dx = static_cast<T*>(a.out) + image * s.dx_image + channel + column * s.dx_column;
    auto put = [&](int line, const float(&v)[Strip::kColumns]) {
      if (line < 0) return;
      T* to = dx + line * s.dx_line;
      MINIDNN_UNROLL
      for (int k = 0; k < Strip::kColumns; ++k, to += s.dx_column)
        if (uint32_t(column + k) < uint32_t(s.w.size)) *to = T(v[k]);
    };
    if constexpr (!kGiven) {
      const T* x = static_cast<const T*>(a.x) + image * s.x_image + channel;
      strip.of_maxima(strip.x(x, s.x_line, s.x_column), dy, put);
    } else if (s.index_bytes == 8) {
      strip.of_indices(indices<int64_t>(strip, channel), dy, put);
    } else {
      strip.of_indices(indices<int32_t>(strip, channel), dy, put);
    }
  }
};

}  // namespace minidnn::pooling
