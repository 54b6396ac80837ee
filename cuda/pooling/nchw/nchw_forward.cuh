// SPDX-License-Identifier: Apache-2.0
// Pooling of planes whose elements are contiguous (NCHW): the code for windows that forward and backward share, and
// forward. A block has several whole planes, or several rows of one plane. It copies the elements of x and dy that it
// needs to shared memory by 16-byte cp.async, and computes there. Several blocks run on an SM, so that some load while
// others compute.
#pragma once
#include "cuda/pooling/block_copy.cuh"
#include "cuda/pooling/nchw/nchw_params.h"
#include "cuda/pooling/register_tile.cuh"

#ifdef __CUDACC__
#include "cuda/device/reduce.cuh"
#endif

namespace minidnn::cuda::pooling {

// The planes that a block processes, and their rows.
struct NchwBlock {
  int64_t plane;
  int planes;
  int begin, end;      // the block's rows of y (forward) or dx (backward): begin <= row < end
  int p_begin, p_end;  // the block's rows of windows: p_begin <= p < p_end
  int x_begin, x_end;  // the rows of x that the block needs: x_begin <= row < x_end

  MINIDNN_HD NchwBlock(const NchwParams& s, int64_t block, bool backward) {
    const int64_t group = s.chunks == 1 ? block : int64_t(s.by_chunks.quotient(uint32_t(block)));
    const int strip = int(block - group * s.chunks), all = backward ? s.h.size : s.h.count;
    plane = group * s.block_planes;
    planes = int(min_of(int64_t(s.block_planes), s.planes - plane));
    begin = strip * s.lines;
    end = min_of(begin + s.lines, all);
    p_begin = backward ? s.h.over_begin(begin) : begin;
    p_end = backward ? s.h.over_end(end - 1) : end;
    x_begin = x_end = 0;
    if (p_begin < p_end) {
      x_begin = min_of(max_of(s.h.first(p_begin), 0), s.h.size);
      x_end = max_of(min_of(s.h.first(p_end - 1) + (s.h.window - 1) * s.h.dilation + 1, s.h.size), x_begin);
    }
    if (s.block_planes > 1) {
      x_begin = 0;
      x_end = s.h.size;
    }  // A block of several planes needs all rows of x, so the planes are copied as one contiguous span.
    p_end = max_of(p_end, p_begin);
    if (backward && s.block_planes > 1) {
      p_begin = 0;
      p_end = s.h.count;
    }
  }
};

// Calls visit(offset in the plane, value) for the elements of x in window (p, q), in order. `lanes` threads share the
// window, and the calling thread visits every `lanes`-th element from number `lane` on.
template <class T, class Visit>
MINIDNN_HD void each_element(const NchwParams& s, const T* plane, int p, int q, int lane, int lanes, Visit&& visit) {
  const int r_begin = s.h.begin(p, 0), r_end = s.h.end(p, s.h.size), c_begin = s.w.begin(q, 0);
  const int columns = s.w.end(q, s.w.size) - c_begin;
  if (columns <= 0) return;
  int c = lane, r = r_begin;
  while (c >= columns) {
    c -= columns;
    ++r;
  }
  for (; r < r_end;) {
    const int at = (s.h.first(p) + r * s.h.dilation) * s.w.size + s.w.first(q) + (c_begin + c) * s.w.dilation;
    visit(at, float(plane[at]));
    c += lanes;
    while (c >= columns) {
      c -= columns;
      ++r;
    }
  }
}

// Computes kDown windows, one below the other, and reads each row of x once for all of them. Calls put(d, result of
// window p + d) for each d below kDown with p + d < p_end. V is the type that accumulates a result.
template <class V, class T, class Put>
MINIDNN_HD void each_down(const NchwParams& s, const T* plane, int p, int p_end, int q, Put&& put) {
  const int windows = min_of(kDown, p_end - p), line = s.h.first(p);
  const int r_begin = max_of(-line, 0), r_end = min_of((windows - 1) * s.h.stride + s.h.window, s.h.size - line);
  const int c_begin = s.w.begin(q, 0), columns = s.w.end(q, s.w.size) - c_begin;
  int at = (line + r_begin) * s.w.size + s.w.first(q) + c_begin * s.w.dilation;
  V found[kDown];
  for (int r = r_begin; r < r_end; ++r, at += s.w.size) {
    V of_line;
    of_line.begin(columns > 0 ? at : -1);
    int index = at;
    MINIDNN_UNROLL_4
    for (int c = 0; c < columns; ++c, index += s.w.dilation) of_line.next(float(plane[index]), index);
    MINIDNN_UNROLL
    for (int d = 0; d < kDown; ++d)
      if (uint32_t(r - d * s.h.stride) < uint32_t(s.h.window)) found[d].join(of_line);
  }
  MINIDNN_UNROLL
  for (int d = 0; d < kDown; ++d)
    if (d < windows) put(d, found[d]);
}

// The partial result of one lane, if a whole plane is one window.
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
  CompensatedSum<float> sum;
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
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const float v = shuffle_xor(best.value, distance);
    const int at = shuffle_xor(best.index, distance);
    best.join(v, at);
  }
}
MINIDNN_HD float sum_lanes(float v, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) v += shuffle_xor(v, distance);
  return v;
}
#else
MINIDNN_HD void join_lanes(Best&, int) {}
MINIDNN_HD float sum_lanes(float v, int) { return v; }
#endif

template <class T, bool kIsMax, class S> struct NchwForward {
  const NchwParams& s;
  const PoolingArgs& a;
  NchwBlock b;
  unsigned char* smem;
  Thread t;

  MINIDNN_HD const T* source() const {
    return static_cast<const T*>(a.x) + (b.plane * s.h.size + b.x_begin) * s.w.size;
  }
  MINIDNN_HD void load() {
    const int n = (b.x_end - b.x_begin) * s.w.size * b.planes;
    copy_in(t, source(), n, at_same_alignment<T>(source(), smem));
  }
  // Calls take(plane of x, p, q, offset of y) for each group of kDown windows that the thread computes. (p, q) is the
  // topmost window of the group.
  template <class Take> MINIDNN_HD void each_windows(Take&& take) {
    const T* x = at_same_alignment<T>(source(), smem) - b.x_begin * s.w.size;
    const int64_t y = b.plane * s.h.count * s.w.count;
    const int n = ceil_div(b.end - b.begin, kDown) * s.w.count * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.results.by_columns.divmod(rest), p = b.begin + s.results.by_lines.divmod(rest) * kDown;
      const int plane = int(rest);
      take(x + plane * s.h.size * s.w.size, p, q, y + (int64_t(plane) * s.h.count + p) * s.w.count + q);
    }
  }
  // Computes y for windows of compile-time size, by tiles, and stores it in shared memory without overwriting x.
  MINIDNN_HD void pool_tiles() {
    constexpr int kAcross = steps_across(S::stride);
    const T* x = at_same_alignment<T>(source(), smem) - b.x_begin * s.w.size;
    const int lines = b.end - b.begin;
    const int n = ceil_div(lines, kDown) * int(s.results.by_columns.divisor) * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.results.by_columns.divmod(rest) * kAcross, p = b.begin + s.results.by_lines.divmod(rest) * kDown;
      const int plane = int(rest);
      T* to = y() + (plane * lines + p - b.begin) * s.w.count + q;
      const Span h{p * S::stride - s.h.before, b.x_begin, b.x_end}, w{q * S::stride - s.w.before, 0, s.w.size};
      const Columns<T, (kAcross - 1) * S::stride + S::window> of(x + plane * s.h.size * s.w.size, s.w.size, 1, w.first,
                                                                 w.end, h.begin, h.end);
      float found[kDown][kAcross];
      join_tile<S, Joined<kIsMax>>(
          h, w,
          [&](int r, int c, bool exists) {
            const float v = float(of.of(of.at(h.first + r), c));
            return exists ? v : 0.f;
          },
          found);
      float line_factor[kDown], column_factor[kAcross];
      if constexpr (!kIsMax) {
        MINIDNN_UNROLL
        for (int d = 0; d < kDown; ++d)
          line_factor[d] = s.mean_factor != 0 ? s.mean_factor : axis_mean_factor<S>(s.h, p + d, s.exclude_padding);
        MINIDNN_UNROLL
        for (int k = 0; k < kAcross; ++k)
          column_factor[k] = s.mean_factor != 0 ? 1.f : axis_mean_factor<S>(s.w, q + k, s.exclude_padding);
      }
      MINIDNN_UNROLL
      for (int d = 0; d < kDown; ++d) MINIDNN_UNROLL
      for (int k = 0; k < kAcross; ++k)
        if (p + d < b.end && q + k < s.w.count)
          to[d * s.w.count + k] = T(kIsMax ? found[d][k] : found[d][k] * (line_factor[d] * column_factor[k]));
    }
  }
  MINIDNN_HD T* target() const { return static_cast<T*>(a.out) + (b.plane * s.h.count + b.begin) * s.w.count; }
  MINIDNN_HD T* y() const { return at_same_alignment<T>(target(), smem + s.dy_at); }
  MINIDNN_HD void store() { copy_out(t, y(), (b.end - b.begin) * s.w.count * b.planes, target()); }
  MINIDNN_HD void pool_with_indices() {
    using R = FirstMaxima<1>;
    each_windows([&](const T* plane, int p, int q, int64_t at) {
      const Span h{p * S::stride - s.h.before, b.x_begin, b.x_end}, w{q * S::stride - s.w.before, 0, s.w.size};
      R::Item found[kDown][1];
      join_tile<S, R>(
          h, w,
          [&](int r, int c, bool) {
            const int index = h.nearest(r) * s.w.size + w.nearest(c);
            return R::item({{float(plane[index])}}, index);
          },
          found);
      MINIDNN_UNROLL
      for (int d = 0; d < kDown; ++d) {
        if (p + d >= b.end) break;
        static_cast<T*>(a.out)[at + d * s.w.count] = T(found[d][0].of[0]);
        put_index(at + d * s.w.count, found[d][0].index[0]);
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
        const float factor = kIsMax ? 1.f : mean_factor_of<S>(s, p + d, q);
        static_cast<T*>(a.out)[at + d * s.w.count] = T(found.value * factor);
        if (kIsMax && s.index_bytes) put_index(at + d * s.w.count, found.at());
      });
    });
  }
  MINIDNN_HD void pool_one_window() {
    const T* x = at_same_alignment<T>(source(), smem);
    const int elements = s.h.size * s.w.size, n = b.planes << s.lane_bits;
    const float factor = kIsMax ? 1.f : mean_factor_of<S>(s, 0, 0);
    for (int i = t.index; i - t.index % 32 < n; i += t.count) {
      const int plane = min_of(i, n - 1) >> s.lane_bits, lane = i & (s.lanes() - 1);
      if constexpr (kIsMax) {
        Best best = best_of(x + plane * elements, elements, lane, s.lanes());
        join_lanes(best, s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[b.plane + plane] = T(best.value);
        put_index(b.plane + plane, best.index);
      } else {
        const float total = sum_lanes(sum_of(x + plane * elements, elements, lane, s.lanes()), s.lanes());
        if (lane == 0 && i < n) static_cast<T*>(a.out)[b.plane + plane] = T(total * factor);
      }
    }
  }
  MINIDNN_HD void pool_any() {
    if (s.one_window) return pool_one_window();
    if (s.several_windows) {
      if constexpr (!kIsMax) return pool_down<Total>();
      else return s.index_bytes ? pool_down<FirstLargest>() : pool_down<Largest>();
    }
    const T* x = at_same_alignment<T>(source(), smem) - b.x_begin * s.w.size;
    const int64_t y = b.plane * s.h.count * s.w.count;
    const int lines = b.end - b.begin, n = lines * s.w.count * b.planes << s.lane_bits;
    // All lanes of a warp stay in the loop, because they exchange values by shuffles.
    for (int i = t.index; i - t.index % 32 < n; i += t.count) {
      uint32_t rest = uint32_t(min_of(i, n - 1));
      const int lane = int(rest) & (s.lanes() - 1);
      rest >>= s.lane_bits;
      const int q = s.results.by_columns.divmod(rest), p = b.begin + s.results.by_lines.divmod(rest);
      const T* plane = x + int(rest) * s.h.size * s.w.size;
      const int64_t at = y + (int64_t(int(rest)) * s.h.count + p) * s.w.count + q;
      if constexpr (kIsMax) {
        Best best;
        each_element(s, plane, p, q, lane, s.lanes(), [&](int index, float v) { best.next(v, index); });
        join_lanes(best, s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[at] = T(best.value);
        put_index(at, best.index == 0x7fffffff ? -1 : best.index);
      } else {
        CompensatedSum<float> sum;
        each_element(s, plane, p, q, lane, s.lanes(), [&](int, float v) { sum.add(v); });
        const float total = sum_lanes(sum.value(), s.lanes());
        if (lane != 0 || i >= n) continue;
        static_cast<T*>(a.out)[at] = T(total * mean_factor_of<S>(s, p, q));
      }
    }
  }
};

}  // namespace minidnn::cuda::pooling
