// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling of tensors with contiguous channels (NHWC).
// - Maxima with windows of compile-time size are in nhwc_max_backward.cuh.
// - Averages at stride 1 with windows of compile-time size: each thread computes a tile of dx.
// - All others: a block computes a tile of dx, such as 16 x 16 positions of 16 channels. In shared memory, it first
//   stores a value per window: the index of its maximum in the tile (the key), or dy / divisor. Then either each window
//   adds its dy to sums of dx (s.scatter), or each element of dx sums the contributions of its windows.
#pragma once
#include "cuda/pooling/nhwc/nhwc_forward.cuh"

namespace minidnn::cuda::pooling {

#ifdef __CUDACC__
// Adds the dy of all windows of a block to dx, in several phases, because overlapping windows must not add at the same
// time.
template <class Work> __device__ __forceinline__ void each_phase(const Work& work, int phases_down, int phases_across) {
  const int count = work.t.count, n = work.corners();
  for (int base = 0; base < n; base += 2 * count) {
    // whether some threads have two windows in each phase
    const bool two = base + count < n;
    for (int down = 0; down < phases_down; ++down)
      for (int across = 0; across < phases_across; ++across) {
        work.scatter(base + work.t.index, down, across);
        if (two) work.scatter(base + count + work.t.index, down, across);
        __syncthreads();
      }
  }
}
#endif

template <class T, bool kIsMax, class S> struct NhwcBackward {
  static constexpr int kWidth = kLanes<T>;
  const NhwcParams& s;
  const PoolingArgs& a;
  int64_t image;
  unsigned char* smem;
  Thread t;
  // The block's tile of dx, in vectors of channels, rows (h) and columns (w), and the rows and columns (p, q) of the
  // windows that overlap it.
  int first_vector, vectors, h_begin, h_end, w_begin, w_end, p_begin, p_end, q_begin, q_end;

  // The layout of shared memory with s.scatter: the sums of dx [rows][columns][channels], then dy and the keys, both
  // [window rows][window columns][channels]. Without it, there are only the keys (maxima) or dy / divisor (averages).
  struct Keys {
    uint16_t of[kWidth];
  };
  struct ScaledDy {
    float of[kWidth];
  };
  MINIDNN_HD float* sums() const { return reinterpret_cast<float*>(smem); }
  MINIDNN_HD T* dy_here() const { return reinterpret_cast<T*>(smem + s.dy_at); }
  MINIDNN_HD Keys* keys() const { return reinterpret_cast<Keys*>(smem + s.keys_at); }
  MINIDNN_HD ScaledDy* scaled_dy() const { return reinterpret_cast<ScaledDy*>(smem); }

  MINIDNN_HD void choose(int tile) {
    uint32_t rest = uint32_t(tile);
    first_vector = s.by_vector_groups.divmod(rest) * s.tile_vectors;
    vectors = min_of(s.tile_vectors, s.vectors - first_vector);
    w_begin = s.by_tiles_across.divmod(rest) * s.tile_columns;
    w_end = min_of(w_begin + s.tile_columns, s.w.size);
    h_begin = int(rest) * s.tile_lines;
    h_end = min_of(h_begin + s.tile_lines, s.h.size);
    p_begin = s.h.over_begin(h_begin);
    p_end = max_of(s.h.over_end(h_end - 1), p_begin);
    q_begin = s.w.over_begin(w_begin);
    q_end = max_of(s.w.over_end(w_end - 1), q_begin);
  }
  MINIDNN_HD const T* dy_at(int p, int q, int vector) const {
    return static_cast<const T*>(a.dy) + image * s.y_image + p * s.y_line + q * s.y_column +
           (first_vector + vector) * kWidth;
  }
  MINIDNN_HD Words dy(int p, int q, int vector) const { return load_words(dy_at(p, q, vector)); }
  MINIDNN_HD uint32_t key_of(int line, int column) const {
    const bool here = h_begin <= line && line < h_end && w_begin <= column && column < w_end;
    return here ? uint32_t((line - h_begin) * s.tile_columns + column - w_begin) : kNowhere;
  }

  MINIDNN_HD void find() {
    if constexpr (kIsMax && S::window == 0)
      if (s.several_windows && s.index_bytes == 0) return find_down();
    // Windows are numbered as in a complete tile, so that the host can compute the divisors.
    const int n = (p_end - p_begin) * s.window_columns * s.tile_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_tile_vectors.divmod(rest), q = q_begin + s.by_window_columns.divmod(rest);
      const int p = p_begin + int(rest);
      if (vector >= vectors || q >= q_end) continue;
      if constexpr (!kIsMax) {
        const Words v = dy(p, q, vector);
        const float scale = mean_factor_of<S>(s, p, q);
        ScaledDy scaled;
        MINIDNN_UNROLL
        for (int k = 0; k < kWidth; ++k) scaled.of[k] = lane<T>(v, k) * scale;
        scaled_dy()[i] = scaled;
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
      uint32_t index, beyond = 0;  // the lower and the upper 32 bits of a given index
      if (s.index_bytes == 8) {
        if (k % 2 == 0) two = load_words(static_cast<const int64_t*>(a.indices) + at + k);
        index = two.word[k % 2 * 2];
        beyond = two.word[k % 2 * 2 + 1];
      } else {
        index = uint32_t(static_cast<const int32_t*>(a.indices)[at + k]);
      }
      bool in = beyond == 0 && index < uint32_t(s.h.size) * uint32_t(s.w.size);
      uint32_t rest = in ? index : 0;
      const int column = s.by_x_columns.divmod(rest);
      // A given index outside its window is dropped here, because scatter() does not check.
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
        best[k] = take ? u : best[k];
        key[k] = take ? here : key[k];
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
    const int n = ceil_div(p_end - p_begin, kDownOf<T>) * s.window_columns * s.tile_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_tile_vectors.divmod(rest), q = q_begin + s.by_window_columns.divmod(rest);
      const int p = p_begin + int(rest) * kDownOf<T>;
      if (vector >= vectors || q >= q_end) continue;
      each_down<FirstLargestLanes<T>, 2>(
          s, static_cast<const T*>(a.x) + image * s.x_image + (first_vector + vector) * kWidth, p, p_end, q,
          [&](int line, int column) { return int(key_of(line, column)); },
          [&](int d, const FirstLargestLanes<T>& found) {
            Keys key;
            MINIDNN_UNROLL
            // If the index is -1 (no maximum), its conversion to 16 bits gives kNowhere.
            for (int k = 0; k < kWidth; ++k) key.of[k] = uint16_t(found.of[k].index);
            keys()[((p + d - p_begin) * s.window_columns + q - q_begin) * s.tile_vectors + vector] = key;
          });
    }
  }

  // Starts the copy of dy to shared memory, and sets the sums of dx to zero. The copy is visible after
  // cp_async_wait_group and a barrier.
  MINIDNN_HD void load() {
    const int n = (p_end - p_begin) * s.window_columns * s.tile_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_tile_vectors.divmod(rest), q = q_begin + s.by_window_columns.divmod(rest);
      if (vector < vectors && q < q_end) copy_vector(dy_here() + i * kWidth, dy_at(p_begin + int(rest), q, vector));
    }
    clear_words(t, sums(), s.tile_lines * s.tile_columns * s.tile_vectors * kWidth / 4);
  }
  // Windows that overlap must not add to dx at the same time, so a block processes its windows in phases: for example,
  // even and odd columns of 3 x 3 windows with stride 2. corners() returns the number of windows of phase (down,
  // across), times the channels of the tile.
  MINIDNN_HD int corners() const {
    return ceil_div(p_end - p_begin, s.phases_down) * int(s.by_phase_columns.divisor) * s.tile_vectors * kWidth;
  }
  MINIDNN_HD void scatter(int corner, int down, int across) const {
    const int channels = s.tile_vectors * kWidth;
    uint32_t rest = uint32_t(corner);
    const int channel = s.by_tile_channels.divmod(rest), q = s.by_phase_columns.divmod(rest) * s.phases_across;
    const int line = int(rest) * s.phases_down;
    if (corner >= corners() || channel >= vectors * kWidth) return;
    if (across >= q_end - q_begin - q || down >= p_end - p_begin - line) return;
    const int window =
        (line * s.window_columns + q) * channels + channel + (down * s.window_columns + across) * channels;
    const uint32_t key = keys()[0].of[window];
    if (key != kNowhere) sums()[int(key) * channels + channel] += float(dy_here()[window]);
  }
  MINIDNN_HD void store() const {
    const int n = (h_end - h_begin) * s.tile_columns * s.tile_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_tile_vectors.divmod(rest);
      const int column = w_begin + s.by_tile_columns.divmod(rest), line = h_begin + int(rest);
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
  // Gradients of averages at stride 1: each dx is a sum over a window of dy. A thread computes one 32-bit word of
  // channels.
  MINIDNN_HD void pool_scaled_dy(int item) const {
    if (s.mean_factor != 0) pool_scaled_dy(item, s.mean_factor, [](int, int) { return 1.f; });
    else pool_scaled_dy(item, 1.f, [&](int p, int q) { return mean_factor_of<S>(s, p, q); });
  }
  template <class FactorOf> MINIDNN_HD void pool_scaled_dy(int item, float scale, FactorOf&& factor_at) const {
    constexpr int kTall = kStaticDown, kWide = kAcross<S>, n = kInWord<T>;
    uint32_t rest = uint32_t(item);
    const int word = s.by_words.divmod(rest), column = s.by_columns.divmod(rest) * kWide, line = int(rest) * kTall;
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
          const float factor = factor_at(p, q);
          MINIDNN_UNROLL
          for (int i = 0; i < n; ++i) v.of[i] *= factor;
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
  // Computes several elements of dx per thread, one below the other, and sums each row of windows once for all of them.
  MINIDNN_HD void gather_down() {
    const int n = ceil_div(h_end - h_begin, kDownOf<T>) * s.tile_columns * s.tile_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_tile_vectors.divmod(rest);
      const int line = h_begin + int(rest) / s.tile_columns * kDownOf<T>, column = w_begin + int(rest) % s.tile_columns;
      if (vector >= vectors || column >= w_end) continue;
      const int results = min_of(kDownOf<T>, h_end - line);
      const int to_p = s.h.over_end(line + results - 1), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
      float sum[kDownOf<T>][kWidth]{};
      for (int p = s.h.over_begin(line); p < to_p; ++p) {
        const int reach = line - s.h.first(p);
        const int window = ((p - p_begin) * s.window_columns - q_begin) * s.tile_vectors + vector;
        float of_line[kWidth]{};
        MINIDNN_UNROLL_4
        for (int q = from_q; q < to_q; ++q) {
          const ScaledDy scaled = scaled_dy()[window + q * s.tile_vectors];
          MINIDNN_UNROLL
          for (int k = 0; k < kWidth; ++k) of_line[k] += scaled.of[k];
        }
        MINIDNN_UNROLL
        for (int d = 0; d < kDownOf<T>; ++d)
          if (uint32_t(reach + d) < uint32_t(s.h.window)) MINIDNN_UNROLL
        for (int k = 0; k < kWidth; ++k) sum[d][k] += of_line[k];
      }
      MINIDNN_UNROLL
      for (int d = 0; d < kDownOf<T>; ++d)
        if (d < results) put(line + d, column, vector, sum[d]);
    }
  }
  MINIDNN_HD void gather() {
    if constexpr (S::window == 0 && !kIsMax)
      if (s.several_windows) return gather_down();
    if constexpr (S::window > 0) {
      // A thread computes a tile of dx of stride x stride elements. All elements of the tile are in the same windows.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kStride = S::stride;
      const int first_line = (h_begin + s.h.before) / kStride, first_column = (w_begin + s.w.before) / kStride;
      const int tile_lines = (h_end - 1 + s.h.before) / kStride - first_line + 1;
      const int columns = s.tile_columns / kStride + 1, n = tile_lines * columns * s.tile_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_tile_vectors.divmod(rest);
        const int tile_q = first_column + s.by_result_columns.divmod(rest), tile_p = first_line + int(rest);
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
            const ScaledDy scaled =
                scaled_dy()[((p - p_begin) * s.window_columns + q - q_begin) * s.tile_vectors + vector];
            MINIDNN_UNROLL
            for (int k = 0; k < kStride; ++k)
              if (left * kStride + k < S::window) MINIDNN_UNROLL
            for (int m = 0; m < kWidth; ++m) of_line[k][m] += scaled.of[m];
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
      const int n = (h_end - h_begin) * s.tile_columns * s.tile_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_tile_vectors.divmod(rest);
        const int line = h_begin + int(rest) / s.tile_columns, column = w_begin + int(rest) % s.tile_columns;
        if (vector >= vectors || column >= w_end) continue;
        const int to_p = s.h.over_end(line), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
        const uint32_t key = key_of(line, column);
        CompensatedSum<float> sum[kWidth];
        for (int p = s.h.over_begin(line); p < to_p; ++p) {
          if (s.h.dilation > 1 && (line - s.h.first(p)) % s.h.dilation) continue;
          for (int q = from_q; q < to_q; ++q) {
            if (s.w.dilation > 1 && (column - s.w.first(q)) % s.w.dilation) continue;
            const int window = ((p - p_begin) * s.window_columns + q - q_begin) * s.tile_vectors + vector;
            if constexpr (kIsMax) {
              const Keys found = keys()[window];
              const Words v = dy(p, q, vector);
              MINIDNN_UNROLL
              for (int k = 0; k < kWidth; ++k)
                if (found.of[k] == key) sum[k].add(lane<T>(v, k));
            } else {
              const ScaledDy scaled = scaled_dy()[window];
              MINIDNN_UNROLL
              for (int k = 0; k < kWidth; ++k) sum[k].add(scaled.of[k]);
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

}  // namespace minidnn::cuda::pooling
