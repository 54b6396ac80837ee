// SPDX-License-Identifier: Apache-2.0
// Pooling of planes whose elements lie side by side (NCHW), a block at a time: some whole planes, or some lines of one.
// What a block needs of x and dy is one run of memory each. It comes to shared memory by 16 bytes, all at once, and is
// pooled there; several blocks on an SM let loads of one hide the arithmetic of others. Backward, gradients of maxima go
// by strips where the compiler knows the windows. Else each window first finds its maximum, or its share, and then each
// dx adds up what the windows over it have for it.
#pragma once
#include "cuda/pooling/strips.h"

namespace minidnn::pooling {

// Takes numbers of [planes][lines][columns] apart. One plane needs no division by its lines.
struct Grid {
  Divisor by_columns, by_lines;
  Grid() = default;
  MINIDNN_HD Grid(int group, int lines, int columns) : by_columns(columns), by_lines(group > 1 ? lines : 1 << 30) {}
};

struct Planes {
  Windows h, w;
  int64_t planes;
  int32_t group;          // planes of a block; 1 where lines are split
  int32_t strips, lines;  // blocks of a plane, and their lines of y (forward) or dx (backward)
  int32_t lane_bits;      // threads of a window, as a power of 2, where the compiler does not know its size
  int32_t index_bytes;    // 0: no indices
  int32_t exclude_padding;
  float share;              // of each element in a mean, if all windows count alike; else 0
  int32_t down;             // of a window's size unknown to the compiler: a thread takes kDown of them below each other
  int32_t whole;            // a plane is one window, so its elements need no telling apart
  int32_t strip;            // lines of a thread's strip of dx
  int32_t above;            // lines that the first of them begins before the plane, where windows do
  int32_t dy_at, found_at;  // in shared memory, after x (or dx) at 0; y lies where dy does
  Divisor by_strips;
  // Of a block: its windows, what a thread at a time finds of them, and what it makes of y or dx.
  Grid windows, finds, results;

  MINIDNN_HD int lanes() const { return 1 << lane_bits; }
  MINIDNN_HD int64_t blocks() const { return ceil_div(planes, int64_t(group)) * strips; }
};

constexpr int kDown = 4;  // windows, or elements of dx, of a thread that takes some below each other

// Steps of windows of a static size, down dx, of a thread backward.
MINIDNN_HD constexpr int steps_down(int window, int stride) { return stride == 1 ? 4 : window > stride ? 2 : 1; }
template <class S> constexpr int kStepsDown = steps_down(S::window, S::stride);

// Steps of windows that a thread's tile of windows of a static size is wide, and its strip of dx.
// Threads begin so many columns apart: numbers odd, or twice so, keep their loads in different banks.
MINIDNN_HD constexpr int steps_across(int stride) { return stride > 1 ? 3 : 7; }
constexpr int kTileThreads = 256;  // of a block, at most
// Whether dx of averages is a tile of sums too.
MINIDNN_HD constexpr bool gathers_tiles(int stride) { return stride == 1; }
// Of a block with strips, and such blocks on an SM: what its registers hold.
MINIDNN_HD constexpr int strip_threads(int stride) { return stride > 1 ? 128 : 64; }
MINIDNN_HD constexpr int plane_strip_blocks(int window, int stride) { return stride == 1 && window == 3 ? 8 : 4; }

// What a block works on.
struct PlanesBlock {
  int64_t plane;
  int planes;
  int begin, end;      // lines of y or dx
  int p_begin, p_end;  // windows' lines
  int x_begin, x_end;  // lines of x

  MINIDNN_HD PlanesBlock(const Planes& s, int64_t block, bool backward) {
    const int64_t group = s.strips == 1 ? block : int64_t(s.by_strips.quotient(uint32_t(block)));
    const int strip = int(block - group * s.strips), all = backward ? s.h.size : s.h.count;
    plane = group * s.group;
    planes = int(min_of(int64_t(s.group), s.planes - plane));
    begin = max_of(strip * s.lines - s.above, 0), end = min_of((strip + 1) * s.lines - s.above, all);
    p_begin = backward ? s.h.over_begin(begin) : begin;
    p_end = backward ? s.h.over_end(end - 1) : end;
    x_begin = x_end = 0;
    if (p_begin < p_end) {
      x_begin = min_of(max_of(s.h.first(p_begin), 0), s.h.size);
      x_end = max_of(min_of(s.h.first(p_end - 1) + (s.h.window - 1) * s.h.dilation + 1, s.h.size), x_begin);
    }
    if (s.group > 1) x_begin = 0, x_end = s.h.size;  // one run of all planes
    p_end = max_of(p_end, p_begin);
    if (backward && s.group > 1) p_begin = 0, p_end = s.h.count;
  }
};

// Calls visit(offset from the plane's first element, value) for a window's elements in x, in order: every `lanes`-th,
// from the `lane`-th on.
template <class T, class Visit>
MINIDNN_HD void each_element(const Planes& s, const T* plane, int p, int q, int lane, int lanes, Visit&& visit) {
  const int r_begin = s.h.begin(p, 0), r_end = s.h.end(p, s.h.size), c_begin = s.w.begin(q, 0);
  const int columns = s.w.end(q, s.w.size) - c_begin;
  if (columns <= 0) return;
  int c = lane, r = r_begin;
  while (c >= columns) c -= columns, ++r;
  for (; r < r_end;) {
    const int at = (s.h.first(p) + r * s.h.dilation) * s.w.size + s.w.first(q) + (c_begin + c) * s.w.dilation;
    visit(at, float(plane[at]));
    c += lanes;
    while (c >= columns) c -= columns, ++r;
  }
}

// Calls put(d, what V finds in it) for the windows at p + d, of kDown but before `p_end`: each line of x is gone through
// once, and what is found there joins all windows over it.
template <class V, class T, class Put>
MINIDNN_HD void each_down(const Planes& s, const T* plane, int p, int p_end, int q, Put&& put) {
  const int windows = min_of(kDown, p_end - p), line = s.h.first(p);
  const int r_begin = max_of(-line, 0), r_end = min_of((windows - 1) * s.h.stride + s.h.window, s.h.size - line);
  const int c_begin = s.w.begin(q, 0), columns = s.w.end(q, s.w.size) - c_begin;
  int at = (line + r_begin) * s.w.size + s.w.first(q) + c_begin * s.w.dilation;
  V found[kDown];
  for (int r = r_begin; r < r_end; ++r, at += s.w.size) {
    V of_line;
    of_line.begin(columns > 0 ? at : -1);
    int place = at;
    MINIDNN_UNROLL_4
    for (int c = 0; c < columns; ++c, place += s.w.dilation) of_line.next(float(plane[place]), place);
    MINIDNN_UNROLL
    for (int d = 0; d < kDown; ++d)
      if (uint32_t(r - d * s.h.stride) < uint32_t(s.h.window)) found[d].join(of_line);
  }
  MINIDNN_UNROLL
  for (int d = 0; d < kDown; ++d)
    if (d < windows) put(d, found[d]);
}

// A lane's part of a plane that is one window.
constexpr int kAtOnce = 8;
template <class T> MINIDNN_HD Best best_of(const T* plane, int n, int lane, int lanes) {
  Best best;
  for (int i = lane; i < n; i += kAtOnce * lanes) {
    MINIDNN_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * lanes < n) best.next(float(plane[i + k * lanes]), i + k * lanes);
  }
  return best;
}
template <class T> MINIDNN_HD float sum_of(const T* plane, int n, int lane, int lanes) {
  CarefulSum<float> sum;
  for (int i = lane; i < n; i += kAtOnce * lanes) {
    float some = 0;
    MINIDNN_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * lanes < n) some += float(plane[i + k * lanes]);
    sum.add(some);
  }
  return sum.value();
}

#ifdef __CUDA_ARCH__
MINIDNN_HD void join_lanes(Best& best, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) {
    const float v = __shfl_xor_sync(0xffffffff, best.value, apart);
    const int at = __shfl_xor_sync(0xffffffff, best.place, apart);
    best.join(v, at);
  }
}
MINIDNN_HD float sum_lanes(float v, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffff, v, apart);
  return v;
}
#else
MINIDNN_HD void join_lanes(Best&, int) {}
MINIDNN_HD float sum_lanes(float v, int) { return v; }
#endif

template <class I> MINIDNN_HD int64_t index_from(const void* indices, int64_t at) {
  return static_cast<const I*>(indices)[at];
}

template <class T, bool is_max, class S> struct PlanesForward {
  const Planes& s;
  const PoolingArgs& a;
  PlanesBlock b;
  unsigned char* room;
  Thread t;

  MINIDNN_HD const T* source() const {
    return static_cast<const T*>(a.x) + (b.plane * s.h.size + b.x_begin) * s.w.size;
  }
  MINIDNN_HD void load() {
    const int n = (b.x_end - b.x_begin) * s.w.size * b.planes;
    copy_in(t, source(), n, placed_like<T>(source(), room));
  }
  // Calls take(plane of x, p, q, the offset of y there) for a thread's windows, kDown below each other from there on.
  template <class Take> MINIDNN_HD void each_windows(Take&& take) {
    const T* x = placed_like<T>(source(), room) - b.x_begin * s.w.size;
    const int64_t y = b.plane * s.h.count * s.w.count;
    const int n = ceil_div(b.end - b.begin, kDown) * s.w.count * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.results.by_columns.digit(rest), p = b.begin + s.results.by_lines.digit(rest) * kDown;
      const int plane = int(rest);
      take(x + plane * s.h.size * s.w.size, p, q, y + (int64_t(plane) * s.h.count + p) * s.w.count + q);
    }
  }
  // Windows of a static size by tiles, to a place of their own.
  MINIDNN_HD void pool_tiles() {
    constexpr int kAcross = steps_across(S::stride);
    const T* x = placed_like<T>(source(), room) - b.x_begin * s.w.size;
    const int lines = b.end - b.begin;
    const int n = ceil_div(lines, kDown) * int(s.results.by_columns.divisor) * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.results.by_columns.digit(rest) * kAcross, p = b.begin + s.results.by_lines.digit(rest) * kDown;
      const int plane = int(rest);
      T* to = y() + (plane * lines + p - b.begin) * s.w.count + q;
      const Span h{p * S::stride - s.h.before, b.x_begin, b.x_end}, w{q * S::stride - s.w.before, 0, s.w.size};
      const Columns<T, (kAcross - 1) * S::stride + S::window> of(x + plane * s.h.size * s.w.size, s.w.size, 1, w.first,
                                                                 w.end, h.begin, h.end);
      float found[kDown][kAcross];
      join_tile<S, Joined<is_max>>(
          h, w,
          [&](int r, int c, bool exists) {
            const float v = float(of.of(of.at(h.first + r), c));
            return exists ? v : 0.f;
          },
          found);
      float line_share[kDown], column_share[kAcross];
      if constexpr (!is_max) {
        MINIDNN_UNROLL
        for (int d = 0; d < kDown; ++d)
          line_share[d] = s.share != 0 ? s.share : share_along<S>(s.h, p + d, s.exclude_padding);
        MINIDNN_UNROLL
        for (int k = 0; k < kAcross; ++k)
          column_share[k] = s.share != 0 ? 1.f : share_along<S>(s.w, q + k, s.exclude_padding);
      }
      MINIDNN_UNROLL
      for (int d = 0; d < kDown; ++d) MINIDNN_UNROLL
      for (int k = 0; k < kAcross; ++k)
        if (p + d < b.end && q + k < s.w.count)
          to[d * s.w.count + k] = T(is_max ? found[d][k] : found[d][k] * (line_share[d] * column_share[k]));
    }
  }
  MINIDNN_HD T* target() const { return static_cast<T*>(a.out) + (b.plane * s.h.count + b.begin) * s.w.count; }
  MINIDNN_HD T* y() const { return placed_like<T>(target(), room + s.dy_at); }
  MINIDNN_HD void store() { copy_out(t, y(), (b.end - b.begin) * s.w.count * b.planes, target()); }
  MINIDNN_HD void pool_with_indices() {
    using R = FirstMaxima<1>;
    each_windows([&](const T* plane, int p, int q, int64_t at) {
      const Span h{p * S::stride - s.h.before, b.x_begin, b.x_end}, w{q * S::stride - s.w.before, 0, s.w.size};
      R::Item found[kDown][1];
      join_tile<S, R>(
          h, w,
          [&](int r, int c, bool) {
            const int place = h.nearest(r) * s.w.size + w.nearest(c);
            return R::item({{float(plane[place])}}, place);
          },
          found);
      MINIDNN_UNROLL
      for (int d = 0; d < kDown; ++d) {
        if (p + d >= b.end) break;
        static_cast<T*>(a.out)[at + d * s.w.count] = T(found[d][0].of[0]);
        put_index(at + d * s.w.count, found[d][0].place[0]);
      }
    });
  }
  MINIDNN_HD void put_index(int64_t at, int index) const {
    if (s.index_bytes == 4) static_cast<int32_t*>(a.indices)[at] = index;
    if (s.index_bytes == 8) static_cast<int64_t*>(a.indices)[at] = index;
  }
  template <class V> MINIDNN_HD void pool_down() {
    each_windows([&](const T* plane, int p, int q, int64_t at) {
      each_down<V>(s, plane, p, b.end, q, [&](int d, const V& found) {
        const float share = is_max ? 1.f : share_of<S>(s, p + d, q);
        static_cast<T*>(a.out)[at + d * s.w.count] = T(found.value * share);
        if (is_max && s.index_bytes) put_index(at + d * s.w.count, found.at());
      });
    });
  }
  MINIDNN_HD void pool_whole() {
    const T* x = placed_like<T>(source(), room);
    const int elements = s.h.size * s.w.size, n = b.planes << s.lane_bits;
    const float share = is_max ? 1.f : share_of<S>(s, 0, 0);
    for (int i = t.index; i - t.index % 32 < n; i += t.count) {
      const int plane = min_of(i, n - 1) >> s.lane_bits, lane = i & (s.lanes() - 1);
      if constexpr (is_max) {
        Best best = best_of(x + plane * elements, elements, lane, s.lanes());
        join_lanes(best, s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[b.plane + plane] = T(best.value);
        put_index(b.plane + plane, best.place);
      } else {
        const float total = sum_lanes(sum_of(x + plane * elements, elements, lane, s.lanes()), s.lanes());
        if (lane == 0 && i < n) static_cast<T*>(a.out)[b.plane + plane] = T(total * share);
      }
    }
  }
  MINIDNN_HD void pool_any() {
    if (s.whole) return pool_whole();
    if (s.down) {
      if constexpr (!is_max) return pool_down<Total>();
      else return s.index_bytes ? pool_down<FirstLargest>() : pool_down<Largest>();
    }
    const T* x = placed_like<T>(source(), room) - b.x_begin * s.w.size;
    const int64_t y = b.plane * s.h.count * s.w.count;
    const int lines = b.end - b.begin, n = lines * s.w.count * b.planes << s.lane_bits;
    // Warps stay together, for their shuffles.
    for (int i = t.index; i - t.index % 32 < n; i += t.count) {
      uint32_t rest = uint32_t(min_of(i, n - 1));
      const int lane = int(rest) & (s.lanes() - 1);
      rest >>= s.lane_bits;
      const int q = s.results.by_columns.digit(rest), p = b.begin + s.results.by_lines.digit(rest);
      const T* plane = x + int(rest) * s.h.size * s.w.size;
      const int64_t at = y + (int64_t(int(rest)) * s.h.count + p) * s.w.count + q;
      if constexpr (is_max) {
        Best best;
        each_element(s, plane, p, q, lane, s.lanes(), [&](int place, float v) { best.next(v, place); });
        join_lanes(best, s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[at] = T(best.value);
        put_index(at, best.place == 0x7fffffff ? -1 : best.place);
      } else {
        CarefulSum<float> sum;
        each_element(s, plane, p, q, lane, s.lanes(), [&](int, float v) { sum.add(v); });
        const float total = sum_lanes(sum.value(), s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[at] = T(total * share_of<S>(s, p, q));
      }
    }
  }
};

template <class T, bool is_max, class S> struct PlanesBackward {
  const Planes& s;
  const PoolingArgs& a;
  PlanesBlock b;
  unsigned char* room;
  Thread t;

  static constexpr int kLoads = 4;  // of indices, under way together

  // For each window the number, among the block's dx, of the one that it is passed on to; or what each of its own gets.
  MINIDNN_HD uint16_t* keys() const { return reinterpret_cast<uint16_t*>(room + s.found_at); }
  MINIDNN_HD float* shares() const { return reinterpret_cast<float*>(room + s.found_at); }
  MINIDNN_HD const T* x_source() const {
    return static_cast<const T*>(a.x) + (b.plane * s.h.size + b.x_begin) * s.w.size;
  }
  MINIDNN_HD int64_t dy_offset() const { return (b.plane * s.h.count + b.p_begin) * s.w.count; }
  MINIDNN_HD const T* dy_source() const { return static_cast<const T*>(a.dy) + dy_offset(); }
  MINIDNN_HD T* dy() const { return placed_like<T>(dy_source(), room + s.dy_at); }
  MINIDNN_HD T* target() const { return static_cast<T*>(a.out) + (b.plane * s.h.size + b.begin) * s.w.size; }
  // Then dx adds up dy itself.
  MINIDNN_HD bool shares_are_alike() const { return !is_max && S::window > 0 && s.share != 0; }
  MINIDNN_HD int windows() const { return (b.p_end - b.p_begin) * s.w.count * b.planes; }

  MINIDNN_HD void load() {
    if (is_max && s.index_bytes == 0)
      copy_in(t, x_source(), (b.x_end - b.x_begin) * s.w.size * b.planes, placed_like<T>(x_source(), room));
    copy_in(t, dy_source(), windows(), dy());
  }
  // Whether an index is in its window: gather_down() asks no more.
  MINIDNN_HD bool has(int p, int q, int place) const {
    if (place < 0) return false;
    uint32_t rest = uint32_t(place);
    const int column = s.results.by_columns.digit(rest) - s.w.first(q), line = int(rest) - s.h.first(p);
    return uint32_t(column) < uint32_t(s.w.window) && uint32_t(line) < uint32_t(s.h.window);
  }
  // What a window passes its dy on to, or shares of it.
  MINIDNN_HD void find() {
    if constexpr (!is_max) find_shares();
    else if (s.index_bytes) take_given();
    else find_maxima();
  }
  MINIDNN_HD void find_shares() {
    if (shares_are_alike()) return;
    for (int i = t.index; i < windows(); i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.windows.by_columns.digit(rest), p = b.p_begin + s.windows.by_lines.digit(rest);
      shares()[i] = float(dy()[i]) * share_of<S>(s, p, q);
    }
  }
  // Of an element's number in its plane, and the plane's in the block.
  MINIDNN_HD uint16_t key_of(int place, int plane) const {
    const int begin = b.begin * s.w.size, end = b.end * s.w.size;
    const bool here = begin <= place && place < end;
    return uint16_t(here ? uint32_t(place - begin) + uint32_t(plane * plane_size()) : kNowhere);
  }
  MINIDNN_HD int plane_size() const { return s.h.size * s.w.size; }
  MINIDNN_HD void take_given() {
    const int n = windows();
    for (int first = t.index; first < n; first += kLoads * t.count) {
      int64_t place[kLoads];
      MINIDNN_UNROLL
      for (int k = 0; k < kLoads; ++k) {
        const int64_t at = dy_offset() + first + k * t.count;
        if (first + k * t.count >= n) place[k] = -1;
        else if (s.index_bytes == 8) place[k] = index_from<int64_t>(a.indices, at);
        else place[k] = index_from<int32_t>(a.indices, at);
      }
      MINIDNN_UNROLL
      for (int k = 0; k < kLoads; ++k) {
        const int i = first + k * t.count;
        if (i >= n) break;
        uint32_t rest = uint32_t(i);
        const int q = s.windows.by_columns.digit(rest), p = b.p_begin + s.windows.by_lines.digit(rest);
        const bool in_plane = 0 <= place[k] && place[k] < plane_size();
        const bool taken = in_plane && (!s.down || has(p, q, int(place[k])));
        keys()[i] = key_of(taken ? int(place[k]) : -1, int(rest));
      }
    }
  }
  MINIDNN_HD void find_maxima() {
    const int n = windows(), lines = b.p_end - b.p_begin;
    if (n == 0) return;
    const T* x = placed_like<T>(x_source(), room) - b.x_begin * s.w.size;
    if (s.down) {
      for (int i = t.index; i < ceil_div(lines, kDown) * s.w.count * b.planes; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int q = s.finds.by_columns.digit(rest), p = b.p_begin + s.finds.by_lines.digit(rest) * kDown;
        const int plane = int(rest), number = (plane * lines + p - b.p_begin) * s.w.count + q;
        each_down<FirstLargest>(s, x + plane * plane_size(), p, b.p_end, q, [&](int d, const FirstLargest& found) {
          keys()[number + d * s.w.count] = key_of(found.at(), plane);
        });
      }
      return;
    }
    for (int i = t.index; i - t.index % 32 < n << s.lane_bits; i += t.count) {
      uint32_t rest = uint32_t(min_of(i, (n << s.lane_bits) - 1));
      const int lane = int(rest) & (s.lanes() - 1), number = int(rest >> s.lane_bits);
      Best best;
      int plane = number;
      if (s.whole) {
        best = best_of(x + plane * plane_size(), plane_size(), lane, s.lanes());
      } else {
        rest >>= s.lane_bits;
        const int q = s.windows.by_columns.digit(rest), p = b.p_begin + s.windows.by_lines.digit(rest);
        plane = int(rest);
        each_element(s, x + plane * plane_size(), p, q, lane, s.lanes(),
                     [&](int place, float v) { best.next(v, place); });
      }
      join_lanes(best, s.lanes());
      if (lane == 0 && i < n << s.lane_bits) keys()[number] = key_of(best.place, plane);
    }
  }
  // Maxima of windows of a static size, given or not: to a place of its own.
  template <bool kGiven> MINIDNN_HD void pool_strips() {
    using Strip = pooling::Strip<S, steps_across(S::stride), false>;
    const int lines = b.end - b.begin, windows_lines = b.p_end - b.p_begin;
    const int first = b.begin == 0 ? -s.above : b.begin;
    const int n = ceil_div(b.end - first, s.strip) * int(s.results.by_columns.divisor) * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int column = s.results.by_columns.digit(rest) * Strip::kColumns - s.w.before % S::stride;
      const int begin = first + s.results.by_lines.digit(rest) * s.strip, plane = int(rest);
      const Strip strip{s.h, s.w, begin, min_of(begin + s.strip, b.end), column};
      auto y = strip.y(dy() + (plane * windows_lines - b.p_begin) * s.w.count, s.w.count, 1);
      y.begin = b.p_begin, y.end = b.p_end;
      T* to = strips_dx() + (plane * lines - b.begin) * s.w.size + column;
      auto put = [&](int line, const float(&dx)[Strip::kColumns]) {
        if (line < b.begin) return;
        MINIDNN_UNROLL
        for (int k = 0; k < Strip::kColumns; ++k)
          if (uint32_t(column + k) < uint32_t(s.w.size)) to[line * s.w.size + k] = T(dx[k]);
      };
      if constexpr (!kGiven) {
        auto x = strip.x(placed_like<T>(x_source(), room) + (plane * s.h.size - b.x_begin) * s.w.size, s.w.size, 1);
        x.begin = b.x_begin, x.end = b.x_end;
        strip.of_maxima(x, y, put);
      } else if (s.index_bytes == 8) {
        strip.of_indices(indices_of<int64_t>(strip, plane), y, put);
      } else {
        strip.of_indices(indices_of<int32_t>(strip, plane), y, put);
      }
    }
  }
  template <class I, class Strip> MINIDNN_HD auto indices_of(const Strip& strip, int plane) const {
    return strip.y(static_cast<const I*>(a.indices) + (b.plane + plane) * s.h.count * s.w.count, s.w.count, 1);
  }
  MINIDNN_HD T* strips_dx() const { return placed_like<T>(target(), room + s.found_at); }
  // What a window, by its number in the block, has for the dx of that number.
  MINIDNN_HD float from(int window, int number) const {
    if constexpr (is_max) return keys()[window] == number ? float(dy()[window]) : 0.f;
    return shares()[window];
  }
  // In place of x, which is not needed any more.
  MINIDNN_HD T* dx() const { return placed_like<T>(target(), room); }
  MINIDNN_HD void gather() {
    if constexpr (S::window == 0)
      if (s.down) return gather_down();
    if constexpr (is_max) return gather_from(dy(), 1.f);
    if constexpr (S::window > 0)
      if (shares_are_alike()) return gather_from(dy(), s.share);
    gather_from(shares(), 1.f);
  }
  // Each dx is `scale` times the sum of what `from` has by window.
  template <class From> MINIDNN_HD void gather_from(const From* from, float scale) {
    T* const dx = this->dx();
    const int lines = b.end - b.begin, Q = s.w.count, windows_lines = b.p_end - b.p_begin;
    if constexpr (gathers_tiles(S::stride)) {
      constexpr int kAcross = steps_across(S::stride);
      const int n = ceil_div(lines, kDown) * int(s.results.by_columns.divisor) * b.planes;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int column = s.results.by_columns.digit(rest) * kAcross;
        const int down = s.results.by_lines.digit(rest) * kDown, plane = int(rest);
        const Span h{b.begin + down + s.h.before - (S::window - 1), b.p_begin, b.p_end},
            w{column + s.w.before - (S::window - 1), 0, Q};
        const Columns<From, kAcross - 1 + S::window> of(from + (plane * windows_lines - b.p_begin) * Q, Q, 1, w.first,
                                                        w.end, h.begin, h.end);
        float sum[kDown][kAcross];
        join_tile<S, Joined<false>>(
            h, w, [&](int r, int c, bool exists) { return exists ? float(of.of(of.at(h.first + r), c)) : 0.f; }, sum);
        T* to = dx + (plane * lines + down) * s.w.size + column;
        MINIDNN_UNROLL
        for (int d = 0; d < kDown; ++d) MINIDNN_UNROLL
        for (int k = 0; k < kAcross; ++k)
          if (down + d < lines && column + k < s.w.size) to[d * s.w.size + k] = T(sum[d][k] * scale);
      }
    } else if constexpr (S::window > 0) {
      // A thread takes the dx between two steps of the windows, which the same windows lie over, and those of the steps
      // below: most of their windows are the same.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kSteps = kStepsDown<S>, kTall = kSteps * S::stride;
      const int first_line = (b.begin + s.h.before) / S::stride, first_column = s.w.before / S::stride;
      const int tile_lines = ((b.end - 1 + s.h.before) / S::stride - first_line) / kSteps + 1;
      const int tile_columns = (s.w.size - 1 + s.w.before) / S::stride + 1 - first_column;
      const int n = tile_lines * tile_columns * b.planes;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int tile_q = first_column + s.results.by_columns.digit(rest),
                  tile_p = first_line + s.results.by_lines.digit(rest) * kSteps;
        const int line = tile_p * S::stride - s.h.before, column = tile_q * S::stride - s.w.before;
        const int number = (int(rest) * lines + line - b.begin) * s.w.size + column;
        float sum[kTall][S::stride]{};
        MINIDNN_UNROLL
        for (int up = kOver - 1; up > -kSteps; --up) {
          const int p = tile_p - up - b.p_begin, window = (int(rest) * windows_lines + p) * Q + tile_q;
          float of_line[S::stride]{};
          MINIDNN_UNROLL
          for (int left = kOver - 1; left >= 0; --left) {
            if (uint32_t(p) >= uint32_t(windows_lines) || uint32_t(tile_q - left) >= uint32_t(Q)) continue;
            const float v = float(from[window - left]);
            MINIDNN_UNROLL
            for (int k = 0; k < S::stride; ++k)
              if (left * S::stride + k < S::window) of_line[k] += v;
          }
          MINIDNN_UNROLL
          for (int j = 0; j < kTall; ++j)
            if (uint32_t(up * S::stride + j) < uint32_t(S::window)) MINIDNN_UNROLL
          for (int k = 0; k < S::stride; ++k) sum[j][k] += of_line[k];
        }
        MINIDNN_UNROLL
        for (int j = 0; j < kTall; ++j) MINIDNN_UNROLL
        for (int k = 0; k < S::stride; ++k)
          if (line + j >= b.begin && line + j < b.end && column + k >= 0 && column + k < s.w.size)
            dx[number + j * s.w.size + k] = T(sum[j][k] * scale);
      }
    } else {
      const int n = lines * s.w.size * b.planes;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int column = s.results.by_columns.digit(rest), line = b.begin + s.results.by_lines.digit(rest);
        const int p_begin = s.h.over_begin(line), p_end = s.h.over_end(line);
        const int q_begin = s.w.over_begin(column), q_end = s.w.over_end(column);
        CarefulSum<float> sum;
        for (int p = p_begin; p < p_end; ++p) {
          if (s.h.dilation > 1 && (line - s.h.first(p)) % s.h.dilation) continue;
          const int window = (int(rest) * windows_lines + p - b.p_begin) * Q;
          for (int q = q_begin; q < q_end; ++q) {
            if (s.w.dilation > 1 && (column - s.w.first(q)) % s.w.dilation) continue;
            if (!is_max || keys()[window + q] == i) sum.add(float(from[window + q]));
          }
        }
        dx[i] = T(sum.value() * scale);
      }
    }
  }
  MINIDNN_HD int results() const { return (b.end - b.begin) * s.w.size * b.planes; }
  // Of a thread some dx below each other: a window's key tells which of them it is for, and its line which share it.
  MINIDNN_HD void gather_down() {
    T* const dx = this->dx();
    const int lines = b.end - b.begin, windows_lines = b.p_end - b.p_begin;
    const int n = ceil_div(lines, kDown) * s.w.size * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int column = s.results.by_columns.digit(rest), line = b.begin + s.results.by_lines.digit(rest) * kDown;
      const int results = min_of(kDown, b.end - line);
      const int number = (int(rest) * lines + line - b.begin) * s.w.size + column;
      const int p_begin = s.h.over_begin(line), p_end = s.h.over_end(line + results - 1);
      const int q_begin = s.w.over_begin(column), q_end = s.w.over_end(column);
      int window = (int(rest) * windows_lines + p_begin - b.p_begin) * s.w.count;
      int reach = line - s.h.first(p_begin);
      float sum[kDown]{};
      for (int p = p_begin; p < p_end; ++p, window += s.w.count, reach -= s.h.stride) {
        if constexpr (is_max) {
          MINIDNN_UNROLL_4
          for (int q = q_begin; q < q_end; ++q) {
            const int key = int(keys()[window + q]) - number;
            const float v = float(dy()[window + q]);
            MINIDNN_UNROLL
            for (int d = 0; d < kDown; ++d)
              if (key == d * s.w.size) sum[d] += v;
          }
        } else {
          float of_line = 0;
          MINIDNN_UNROLL_4
          for (int q = q_begin; q < q_end; ++q) of_line += shares()[window + q];
          MINIDNN_UNROLL
          for (int d = 0; d < kDown; ++d)
            if (uint32_t(reach + d) < uint32_t(s.h.window)) sum[d] += of_line;
        }
      }
      MINIDNN_UNROLL
      for (int d = 0; d < kDown; ++d)
        if (d < results) dx[number + d * s.w.size] = T(sum[d]);
    }
  }
  // Planes of one window each: dx needs no place of its own, and goes out in words.
  MINIDNN_HD void spread() {
    const int elements = s.h.size * s.w.size;
    auto words_at = [&](int first) {
      uint32_t rest = uint32_t(first);
      int left = elements - s.results.by_columns.digit(rest), plane = int(rest);
      float v[kLanes<T>];
      MINIDNN_UNROLL
      for (int k = 0; k < kLanes<T>; ++k) {
        v[k] = from(plane, first + k);
        if (--left == 0) left = elements, plane = min_of(plane + 1, b.planes - 1);
      }
      return words_of<T>(v);
    };
    auto at = [&](int i) { return T(from(int(s.results.by_columns.quotient(uint32_t(i))), i)); };
    write_out(t, target(), elements * b.planes, words_at, at);
  }
  MINIDNN_HD void store(const T* from) { copy_out(t, from, results(), target()); }
};

}  // namespace minidnn::pooling
