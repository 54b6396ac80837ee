// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling of planes (NCHW) in shared memory.
// - Maxima with windows of compile-time size: by strips (register_strip.cuh), which are adjacent columns of windows.
// - Averages at stride 1 with windows of compile-time size: by tiles (register_tile.cuh).
// - All others: each window first finds its maximum, or divides its dy by the number of its elements. Then each element
//   of dx sums the contributions of the windows that contain it.
#pragma once
#include "cuda/pooling/nchw/nchw_forward.cuh"
#include "cuda/pooling/register_strip.cuh"

namespace minidnn::cuda::pooling {

template <class I> MINIDNN_HD int64_t index_from(const void* indices, int64_t at) {
  return static_cast<const I*>(indices)[at];
}

template <class T, bool kIsMax, class S> struct NchwBackward {
  const NchwParams& s;
  const PoolingArgs& a;
  NchwBlock b;
  unsigned char* smem;
  Thread t;

  static constexpr int kLoads = 4;  // the number of indices that a thread loads at the same time

  // One value per window, in shared memory. Max pooling: the key, which is the index of the window's maximum among the
  // elements of dx in the block. Average pooling: the window's dy divided by its divisor.
  MINIDNN_HD uint16_t* keys() const { return reinterpret_cast<uint16_t*>(smem + s.keys_at); }
  MINIDNN_HD float* scaled_dy() const { return reinterpret_cast<float*>(smem + s.keys_at); }
  MINIDNN_HD const T* x_source() const {
    return static_cast<const T*>(a.x) + (b.plane * s.h.size + b.x_begin) * s.w.size;
  }
  MINIDNN_HD int64_t dy_offset() const { return (b.plane * s.h.count + b.p_begin) * s.w.count; }
  MINIDNN_HD const T* dy_source() const { return static_cast<const T*>(a.dy) + dy_offset(); }
  MINIDNN_HD T* dy() const { return at_same_alignment<T>(dy_source(), smem + s.dy_at); }
  MINIDNN_HD T* target() const { return static_cast<T*>(a.out) + (b.plane * s.h.size + b.begin) * s.w.size; }
  // Whether all windows of an average have the same divisor. If so, the sum of dy is divided, and not each dy.
  MINIDNN_HD bool one_mean_factor() const { return !kIsMax && S::window > 0 && s.mean_factor != 0; }
  MINIDNN_HD int windows() const { return (b.p_end - b.p_begin) * s.w.count * b.planes; }

  MINIDNN_HD void load() {
    if (kIsMax && s.index_bytes == 0)
      copy_in(t, x_source(), (b.x_end - b.x_begin) * s.w.size * b.planes, at_same_alignment<T>(x_source(), smem));
    copy_in(t, dy_source(), windows(), dy());
  }
  // Copies the given indices of the maxima to shared memory, in place of x.
  template <class I> MINIDNN_HD void load_indices() {
    const I* from = static_cast<const I*>(a.indices) + dy_offset();
    copy_in(t, from, windows(), at_same_alignment<I>(from, smem));
  }
  // Returns whether element `index` of the plane is inside window (p, q). gather_down() does not check given indices.
  MINIDNN_HD bool has(int p, int q, int index) const {
    if (index < 0) return false;
    uint32_t rest = uint32_t(index);
    const int column = s.results.by_columns.divmod(rest) - s.w.first(q), line = int(rest) - s.h.first(p);
    return uint32_t(column) < uint32_t(s.w.window) && uint32_t(line) < uint32_t(s.h.window);
  }
  // Computes one value per window: the index of the dx that receives the window's dy (max pooling), or dy / divisor
  // (average pooling).
  MINIDNN_HD void find() {
    if constexpr (!kIsMax) scale_dy();
    else if (s.index_bytes) keys_of_indices();
    else find_maxima();
  }
  MINIDNN_HD void scale_dy() {
    if (one_mean_factor()) return;
    for (int i = t.index; i < windows(); i += t.count) {
      uint32_t rest = uint32_t(i);
      const int q = s.windows.by_columns.divmod(rest), p = b.p_begin + s.windows.by_lines.divmod(rest);
      scaled_dy()[i] = float(dy()[i]) * mean_factor_of<S>(s, p, q);
    }
  }
  // Converts `index`, an index in plane number `plane` of the block, to an index among the elements of dx in the block.
  // Returns kNowhere if that dx is not in the block.
  MINIDNN_HD uint16_t key_of(int index, int plane) const {
    const int begin = b.begin * s.w.size, end = b.end * s.w.size;
    const bool here = begin <= index && index < end;
    return uint16_t(here ? uint32_t(index - begin) + uint32_t(plane * plane_size()) : kNowhere);
  }
  MINIDNN_HD int plane_size() const { return s.h.size * s.w.size; }
  MINIDNN_HD void keys_of_indices() {
    const int n = windows();
    for (int first = t.index; first < n; first += kLoads * t.count) {
      int64_t index[kLoads];
      MINIDNN_UNROLL
      for (int k = 0; k < kLoads; ++k) {
        const int64_t at = dy_offset() + first + k * t.count;
        if (first + k * t.count >= n) index[k] = -1;
        else if (s.index_bytes == 8) index[k] = index_from<int64_t>(a.indices, at);
        else index[k] = index_from<int32_t>(a.indices, at);
      }
      MINIDNN_UNROLL
      for (int k = 0; k < kLoads; ++k) {
        const int i = first + k * t.count;
        if (i >= n) break;
        uint32_t rest = uint32_t(i);
        const int q = s.windows.by_columns.divmod(rest), p = b.p_begin + s.windows.by_lines.divmod(rest);
        const bool in_plane = 0 <= index[k] && index[k] < plane_size();
        const bool taken = in_plane && (!s.several_windows || has(p, q, int(index[k])));
        keys()[i] = key_of(taken ? int(index[k]) : -1, int(rest));
      }
    }
  }
  MINIDNN_HD void find_maxima() {
    const int n = windows(), lines = b.p_end - b.p_begin;
    if (n == 0) return;
    const T* x = at_same_alignment<T>(x_source(), smem) - b.x_begin * s.w.size;
    if (s.several_windows) {
      for (int i = t.index; i < ceil_div(lines, kDown) * s.w.count * b.planes; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int q = s.searches.by_columns.divmod(rest), p = b.p_begin + s.searches.by_lines.divmod(rest) * kDown;
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
      if (s.one_window) {
        best = best_of(x + plane * plane_size(), plane_size(), lane, s.lanes());
      } else {
        rest >>= s.lane_bits;
        const int q = s.windows.by_columns.divmod(rest), p = b.p_begin + s.windows.by_lines.divmod(rest);
        plane = int(rest);
        each_element(s, x + plane * plane_size(), p, q, lane, s.lanes(),
                     [&](int index, float v) { best.next(v, index); });
      }
      join_lanes(best, s.lanes());
      if (lane == 0 && i < n << s.lane_bits) keys()[number] = key_of(best.index, plane);
    }
  }
  // The address of the sums of dx in shared memory. The sums for each 16-byte word of dx in global memory are aligned
  // to 16 bytes.
  MINIDNN_HD int results() const { return (b.end - b.begin) * s.w.size * b.planes; }
  MINIDNN_HD float* sums() const {
    const int head = elements_before_words<T>(target(), results());
    return reinterpret_cast<float*>(smem + s.sums_at) + (4 - head % 4) % 4;
  }
  MINIDNN_HD void clear_sums() const { clear_words(t, smem + s.sums_at, ceil_div(results() + 3, 4)); }
  MINIDNN_HD void store_sums() const {
    const float* from = sums();
    write_out(
        t, target(), results(), [&](int i) { return words_of_sums<T>(from + i); }, [&](int i) { return T(from[i]); });
  }
  // Adds the dy of each window to the dx of its maximum, for windows of compile-time size. Each lane processes a strip
  // (adjacent columns of windows), row by row. Two threads must not add to the same dx at once. Therefore, the lanes of
  // a warp advance from window to window together, warps synchronise before rows that overlap the strips below, and
  // even groups of 32 strips are processed before odd groups.
  template <int kIndexBytes> MINIDNN_HD void pool_maxima() {
    using Index = typename IndexOf<kIndexBytes>::type;
    using Strip = pooling::Strip<T, S, kStripWindows>;
    constexpr bool kOverlap = S::window > S::stride;
    const int lines = b.p_end - b.p_begin, lane = t.index % 32;
    const int strips_of_warp = int(s.by_lanes.quotient(32)), strip_of_warp = int(s.by_lanes.quotient(uint32_t(lane)));
    const int lane_of_strip = lane - strip_of_warp * int(s.by_lanes.divisor);
    const int halves = s.w.count > 32 * kStripWindows ? 2 : 1;
    const T* const x = at_same_alignment<T>(x_source(), smem) - b.x_begin * s.w.size;
    const T* const dy = this->dy();
    float* const sums = this->sums();
    for (int round = 0; round < s.strip_rounds * halves; ++round) {
      uint32_t rest = uint32_t((round / halves * (t.count / 32) + t.index / 32) * strips_of_warp + strip_of_warp);
      const int pair = s.results.by_columns.divmod(rest), strip = s.results.by_lines.divmod(rest);
      const int plane = min_of(int(rest), b.planes - 1);
      const int q = ((pair * 2 + round % halves) * 32 + lane_of_strip) * kStripWindows;
      const int begin = b.p_begin + strip * s.strip_lines, end = begin + s.strip_lines;
      const int exist = strip_of_warp < strips_of_warp && int(rest) < b.planes ? min_of(end, b.p_end) : begin;
      const int first_window = (plane * lines - b.p_begin) * s.w.count;
      const Columns<T, kStripWindows> of_dy(dy + first_window, s.w.count, 1, q, s.w.count, b.p_begin, b.p_end);
      uint32_t limit[kStripWindows];
      MINIDNN_UNROLL
      for (int i = 0; i < kStripWindows; ++i) limit[i] = q + i < s.w.count ? uint32_t(results()) : 0;
      auto step = [&](int p) {
        if (kOverlap && p == end - Strip::kOver) sync_threads();
      };
      auto add = [&](int p, const int(&number)[kStripWindows]) {
        const T* from = of_dy.at(p);
        float v[kStripWindows];
        MINIDNN_UNROLL
        for (int i = 0; i < kStripWindows; ++i) v[i] = float(of_dy.of(from, i));
        MINIDNN_UNROLL
        for (int i = 0; i < kStripWindows; ++i) {
          if (p < exist && uint32_t(number[i]) < limit[i]) sums[number[i]] = kOverlap ? sums[number[i]] + v[i] : v[i];
          if (kOverlap) sync_lanes();
        }
      };
      int number[kStripWindows];
      if constexpr (kIndexBytes > 0) {
        const Index* const given = at_same_alignment<Index>(static_cast<const Index*>(a.indices) + dy_offset(), smem);
        const Columns<Index, kStripWindows> of_given(given + first_window, s.w.count, 1, q, s.w.count, b.p_begin,
                                                     b.p_end);
        const int first = (plane * (b.end - b.begin) - b.begin) * s.w.size;
        for (int p = begin; p < end; ++p) {
          step(p);
          const Index* from = of_given.at(p);
          MINIDNN_UNROLL
          for (int i = 0; i < kStripWindows; ++i) {
            const Index index = of_given.of(from, i);
            const Given<S> at(index, s.by_x_columns, s.h.first(p), s.w.first(q + i));
            // whether dx of this row belongs to the block
            const bool here = at.seen & (b.begin <= at.line) & (at.line < b.end);
            number[i] = here ? first + int(index) : -1;
          }
          add(p, number);
        }
      } else {
        const Columns<T, Strip::kSeen> of_x(x + plane * plane_size(), s.w.size, 1, s.w.first(q), s.w.size, b.x_begin,
                                            b.x_end);
        // Elements are numbered from row x_begin on, because a maximum may be above the first row of dx in the block.
        const int first = plane * plane_size() + s.w.first(q), above = (b.begin - b.x_begin) * s.w.size;
        Strip(s.h, s.w, q)
            .each_line(
                begin, end, step, [&](int line, int, int c) { return of_x.of(of_x.at(line), c); },
                [&](int line) { return first + (line - b.x_begin) * s.w.size; },
                [&](int p, const typename Strip::Item(&found)[kStripWindows]) {
                  MINIDNN_UNROLL
                  for (int i = 0; i < kStripWindows; ++i) number[i] = (Strip::R::index(found[i]) & 0xffff) - above;
                  add(p, number);
                });
      }
      sync_threads();
    }
  }
  // Returns what window number `window` of the block contributes to dx number `number` of the block.
  MINIDNN_HD float from(int window, int number) const {
    if constexpr (kIsMax) return keys()[window] == number ? float(dy()[window]) : 0.f;
    return scaled_dy()[window];
  }
  // The address of dx in shared memory, in place of x.
  MINIDNN_HD T* dx() const { return at_same_alignment<T>(target(), smem); }
  MINIDNN_HD void gather() {
    if constexpr (S::window == 0)
      if (s.several_windows) return gather_down();
    if constexpr (kIsMax) return gather_from(dy(), 1.f);
    if constexpr (S::window > 0)
      if (one_mean_factor()) return gather_from(dy(), s.mean_factor);
    gather_from(scaled_dy(), 1.f);
  }
  // Computes each dx as `scale` times the sum of from[window] over all windows that contain the dx.
  template <class From> MINIDNN_HD void gather_from(const From* from, float scale) {
    T* const dx = this->dx();
    const int lines = b.end - b.begin, Q = s.w.count, windows_lines = b.p_end - b.p_begin;
    if constexpr (gathers_tiles(S::stride)) {
      constexpr int kAcross = steps_across(S::stride);
      const int n = ceil_div(lines, kDown) * int(s.results.by_columns.divisor) * b.planes;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int column = s.results.by_columns.divmod(rest) * kAcross;
        const int down = s.results.by_lines.divmod(rest) * kDown, plane = int(rest);
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
      // A thread computes kSteps tiles of dx, one below the other. A tile has stride x stride elements, which are all
      // in the same windows.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kSteps = steps_down(S::window, S::stride),
                    kTall = kSteps * S::stride;
      const int first_line = (b.begin + s.h.before) / S::stride, first_column = s.w.before / S::stride;
      const int tile_lines = ((b.end - 1 + s.h.before) / S::stride - first_line) / kSteps + 1;
      const int tile_columns = (s.w.size - 1 + s.w.before) / S::stride + 1 - first_column;
      const int n = tile_lines * tile_columns * b.planes;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int tile_q = first_column + s.results.by_columns.divmod(rest),
                  tile_p = first_line + s.results.by_lines.divmod(rest) * kSteps;
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
        const int column = s.results.by_columns.divmod(rest), line = b.begin + s.results.by_lines.divmod(rest);
        const int p_begin = s.h.over_begin(line), p_end = s.h.over_end(line);
        const int q_begin = s.w.over_begin(column), q_end = s.w.over_end(column);
        CompensatedSum<float> sum;
        for (int p = p_begin; p < p_end; ++p) {
          if (s.h.dilation > 1 && (line - s.h.first(p)) % s.h.dilation) continue;
          const int window = (int(rest) * windows_lines + p - b.p_begin) * Q;
          for (int q = q_begin; q < q_end; ++q) {
            if (s.w.dilation > 1 && (column - s.w.first(q)) % s.w.dilation) continue;
            if (!kIsMax || keys()[window + q] == i) sum.add(float(from[window + q]));
          }
        }
        dx[i] = T(sum.value() * scale);
      }
    }
  }
  // Computes kDown adjacent elements of a column of dx per thread, and reads each window once for all of them.
  MINIDNN_HD void gather_down() {
    T* const dx = this->dx();
    const int lines = b.end - b.begin, windows_lines = b.p_end - b.p_begin;
    const int n = ceil_div(lines, kDown) * s.w.size * b.planes;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int column = s.results.by_columns.divmod(rest), line = b.begin + s.results.by_lines.divmod(rest) * kDown;
      const int results = min_of(kDown, b.end - line);
      const int number = (int(rest) * lines + line - b.begin) * s.w.size + column;
      const int p_begin = s.h.over_begin(line), p_end = s.h.over_end(line + results - 1);
      const int q_begin = s.w.over_begin(column), q_end = s.w.over_end(column);
      int window = (int(rest) * windows_lines + p_begin - b.p_begin) * s.w.count;
      int reach = line - s.h.first(p_begin);
      float sum[kDown]{};
      for (int p = p_begin; p < p_end; ++p, window += s.w.count, reach -= s.h.stride) {
        if constexpr (kIsMax) {
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
          for (int q = q_begin; q < q_end; ++q) of_line += scaled_dy()[window + q];
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
  // Stores dx for planes that consist of one window. dx is written to global memory directly, in 16-byte words.
  MINIDNN_HD void store_one_window() {
    const int elements = s.h.size * s.w.size;
    auto words_at = [&](int first) {
      uint32_t rest = uint32_t(first);
      int left = elements - s.results.by_columns.divmod(rest), plane = int(rest);
      float v[kLanes<T>];
      MINIDNN_UNROLL
      for (int k = 0; k < kLanes<T>; ++k) {
        v[k] = from(plane, first + k);
        if (--left == 0) {
          left = elements;
          plane = min_of(plane + 1, b.planes - 1);
        }
      }
      return words_of<T>(v);
    };
    auto at = [&](int i) { return T(from(int(s.results.by_columns.quotient(uint32_t(i))), i)); };
    write_out(t, target(), results(), words_at, at);
  }
  MINIDNN_HD void store(const T* from) { copy_out(t, from, results(), target()); }
};

}  // namespace minidnn::cuda::pooling
