// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling where channels are contiguous. If the compiler knows the windows, gradients of maxima are
// computed by strips and those of averages at stride 1 by tiles. Otherwise a block takes a tile of dx: it first
// computes, into shared memory, the maximum or the share of dy of each window over the tile. For maxima, each window
// then adds its dy to a dx in shared memory, in phases of windows that do not overlap. For averages, each dx sums the
// shares of the windows over it.
#pragma once
#include "cuda/pooling/channels.h"
#include "cuda/pooling/strips.h"

namespace minidnn::pooling {

constexpr int kStripThreads = 128;  // per block
// Width of a strip of dx, in steps of the windows.
MINIDNN_HD constexpr int strip_steps(int stride) { return stride > 1 ? 4 : 8; }
constexpr int kMostStripLines = 1024;  // place numbers have 16 bits
// Lines of dx whose sums are held at a time; a power of two.
MINIDNN_HD constexpr int lines_of_sums(int window, int stride) { return window == stride ? 2 : window > 4 ? 8 : 4; }
// Blocks per SM, as the registers allow; and, for strip_stages(), lines of windows whose data is in flight or has
// arrived.
MINIDNN_HD constexpr int strip_blocks(int window, int stride, size_t size, bool given) {
  return given || stride > 1 ? 4 : (window > 4 ? 3 : 4) - (size > 2 ? 1 : 0);
}
MINIDNN_HD constexpr int strip_stages(int window, size_t size, bool given) {
  return given || (size > 2 && window < 5) ? 3 : 4;
}

#ifdef __CUDACC__
// Covers all windows of a block; a thread takes two in each phase.
template <class Work> __device__ __forceinline__ void each_turn(const Work& work, int turns_down, int turns_across) {
  const int count = work.t.count, n = work.corners();
  for (int base = 0; base < n; base += 2 * count) {
    const bool two = base + count < n;  // if false, no thread has a second window
    for (int down = 0; down < turns_down; ++down)
      for (int across = 0; across < turns_across; ++across) {
        work.scatter(base + work.t.index, down, across);
        if (two) work.scatter(base + count + work.t.index, down, across);
        __syncthreads();
      }
  }
}
#endif

template <class T, bool is_max, class S> struct ChannelsBackward {
  static constexpr int kWidth = kLanes<T>;
  const Channels& s;
  const PoolingArgs& a;
  int64_t image;
  unsigned char* room;
  Thread t;
  // The block's tile.
  int first_vector, vectors, h_begin, h_end, w_begin, w_end, p_begin, p_end, q_begin, q_end;

  // Layout of shared memory. Where windows add to dx: sums [lines][columns][channels], then dy and keys [window
  // lines][window columns][channels]. Otherwise: keys or shares alone.
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
    first_vector = s.by_vector_groups.divmod(rest) * s.block_vectors;
    vectors = min_of(s.block_vectors, s.vectors - first_vector);
    w_begin = s.by_tile_columns.divmod(rest) * s.columns, w_end = min_of(w_begin + s.columns, s.w.size);
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
    // The numbers are those of a whole tile, so that the divisors are known in advance.
    const int n = (p_end - p_begin) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.divmod(rest), q = q_begin + s.by_q_columns.divmod(rest);
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
      uint32_t index, beyond = 0;  // lower and upper 32 bits
      if (s.index_bytes == 8) {
        if (k % 2 == 0) two = load_words(static_cast<const int64_t*>(a.indices) + at + k);
        index = two.word[k % 2 * 2], beyond = two.word[k % 2 * 2 + 1];
      } else {
        index = uint32_t(static_cast<const int32_t*>(a.indices)[at + k]);
      }
      bool in = beyond == 0 && index < uint32_t(s.h.size) * uint32_t(s.w.size);
      // All indices of a window are close to each other; the multiplication by_line computes an index's line.
      uint32_t rest = in ? index : 0;
      const int column = s.by_line.divmod(rest);
      // scatter() does not check whether an index is in its window.
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
    const int n = ceil_div(p_end - p_begin, kDownOf<T>) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.divmod(rest), q = q_begin + s.by_q_columns.divmod(rest);
      const int p = p_begin + int(rest) * kDownOf<T>;
      if (vector >= vectors || q >= q_end) continue;
      each_down<FirstLargestLanes<T>, 2>(
          s, static_cast<const T*>(a.x) + image * s.x_image + (first_vector + vector) * kWidth, p, p_end, q,
          [&](int line, int column) { return int(key_of(line, column)); },
          [&](int d, const FirstLargestLanes<T>& found) {
            Keys key;
            MINIDNN_UNROLL
            for (int k = 0; k < kWidth; ++k) key.of[k] = uint16_t(found.of[k].place);  // -1 (no maximum) is kNowhere
            keys()[((p + d - p_begin) * s.q_columns + q - q_begin) * s.block_vectors + vector] = key;
          });
    }
  }

  // Starts the copy of dy to shared memory (visible after cp_async_wait_group and a barrier), and sets the sums to
  // zero.
  MINIDNN_HD void load() {
    const int n = (p_end - p_begin) * s.q_columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.divmod(rest), q = q_begin + s.by_q_columns.divmod(rest);
      if (vector < vectors && q < q_end) copy_vector(dy_here() + i * kWidth, dy_at(p_begin + int(rest), q, vector));
    }
    clear_words(t, sums(), s.lines * s.columns * s.block_vectors * kWidth / 4);
  }
  // A corner is every apart_h-th window down and every apart_w-th across, per channel. In the phase (down, across), the
  // window this far from each corner adds its dy to one dx. The windows of one phase do not overlap, so no two threads
  // update the same dx.
  MINIDNN_HD int corners() const {
    return ceil_div(p_end - p_begin, s.apart_h) * int(s.by_q_apart.divisor) * s.block_vectors * kWidth;
  }
  MINIDNN_HD void scatter(int corner, int down, int across) const {
    const int channels = s.block_vectors * kWidth;
    uint32_t rest = uint32_t(corner);
    const int channel = s.by_block_channels.divmod(rest), q = s.by_q_apart.divmod(rest) * s.apart_w;
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
      const int vector = s.by_block_vectors.divmod(rest);
      const int column = w_begin + s.by_tile_width.divmod(rest), line = h_begin + int(rest);
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
  // Averages at stride 1: dx is a sum over a window of dy, here for one word of channels.
  MINIDNN_HD void pool_shares(int item) const {
    if (s.share != 0) pool_shares(item, s.share, [](int, int) { return 1.f; });
    else pool_shares(item, 1.f, [&](int p, int q) { return share_of<S>(s, p, q); });
  }
  template <class ShareOf> MINIDNN_HD void pool_shares(int item, float scale, ShareOf&& share_at) const {
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
  // A thread takes several dx below each other, and sums each line of windows once for all of them.
  MINIDNN_HD void gather_down() {
    const int n = ceil_div(h_end - h_begin, kDownOf<T>) * s.columns * s.block_vectors;
    for (int i = t.index; i < n; i += t.count) {
      uint32_t rest = uint32_t(i);
      const int vector = s.by_block_vectors.divmod(rest);
      const int line = h_begin + int(rest) / s.columns * kDownOf<T>, column = w_begin + int(rest) % s.columns;
      if (vector >= vectors || column >= w_end) continue;
      const int results = min_of(kDownOf<T>, h_end - line);
      const int to_p = s.h.over_end(line + results - 1), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
      float sum[kDownOf<T>][kWidth]{};
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
    if constexpr (S::window == 0 && !is_max)
      if (s.down) return gather_down();
    if constexpr (S::window > 0) {
      // A thread takes the dx between two steps of the windows: the same windows cover them.
      constexpr int kOver = (S::window - 1) / S::stride + 1, kStride = S::stride;
      const int first_line = (h_begin + s.h.before) / kStride, first_column = (w_begin + s.w.before) / kStride;
      const int tile_lines = (h_end - 1 + s.h.before) / kStride - first_line + 1;
      const int columns = s.columns / kStride + 1, n = tile_lines * columns * s.block_vectors;
      for (int i = t.index; i < n; i += t.count) {
        uint32_t rest = uint32_t(i);
        const int vector = s.by_block_vectors.divmod(rest);
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
        const int vector = s.by_block_vectors.divmod(rest);
        const int line = h_begin + int(rest) / s.columns, column = w_begin + int(rest) % s.columns;
        if (vector >= vectors || column >= w_end) continue;
        const int to_p = s.h.over_end(line), from_q = s.w.over_begin(column), to_q = s.w.over_end(column);
        const uint32_t key = key_of(line, column);
        CompensatedSum<float> sum[kWidth];
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

// The copy, by the lanes of a warp for each other, of part of a line: n places side by side, 32 channels each, in
// copies of 16 bytes. A place that does not exist is replaced by the nearest.
template <class U, int n> struct Places {
  static constexpr int kLanes = 16 / int(sizeof(U)), kVectors = 32 / kLanes;
#ifdef __CUDA_ARCH__
  static constexpr int kCopiers = 32;
#else
  static constexpr int kCopiers = kVectors;  // a test runs threads one after another, and each copies what it needs
#endif
  static constexpr int kCopies = (n * kVectors + kCopiers - 1) / kCopiers;
  int copier, channel;  // channel: the first that the thread copies, counted from the group's first
  uint32_t offset[kCopies];

  MINIDNN_HD Places(int lane, int first, int size, int64_t column_stride)
      : copier(kCopiers == 32 ? lane : lane / kLanes), channel(copier % kVectors * kLanes) {
    MINIDNN_UNROLL
    for (int m = 0; m < kCopies; ++m) {
      const int at = first + (m * kCopiers + copier) / kVectors;
      offset[m] = uint32_t(min_of(max_of(at, 0), size - 1)) * uint32_t(column_stride);
    }
  }
  // `line` points to the thread's channels of a line.
  MINIDNN_HD void copy(const U* line, U* to) const {
    MINIDNN_UNROLL
    for (int m = 0; m < kCopies; ++m)
      if ((m + 1) * kCopiers <= n * kVectors || m * kCopiers + copier < n * kVectors)
        copy_vector(to + (m * kCopiers + copier) * kLanes, line + offset[m]);
  }
};

// A strip of dx for windows that the compiler knows: each lane of a warp has one channel. Each window adds its dy to
// the dx of its maximum if that is in the strip. Lines of x (or of indices) and of dy are copied to shared memory some
// steps ahead. Shared memory holds the sums of a few lines at a time; each thread updates only its own sums.
template <class T, class S, int kIndexBytes> struct ChannelsMaxima {
  static constexpr bool kGiven = kIndexBytes > 0;
  using Index = typename IndexOf<kIndexBytes>::type;
  static constexpr int kSteps = strip_steps(S::stride), kColumns = kSteps * S::stride;
  static constexpr int kWindows = kSteps + (S::window - 1) / S::stride;
  using Strip = pooling::Strip<T, S, kWindows>;
  static constexpr int kBefore = Strip::kOver * S::stride;
  static constexpr int kStages = strip_stages(S::window, sizeof(T), kGiven);
  // Layout of a step's stage: x line by line, then dy, then indices; 32 channels of each place.
  static constexpr int kDyAt = kGiven ? 0 : S::stride * Strip::kSeen * 32 * int(sizeof(T));
  static constexpr int kIndicesAt = kDyAt + kWindows * 32 * int(sizeof(T));
  static constexpr int kStageBytes = kIndicesAt + kWindows * 32 * kIndexBytes;
  static constexpr int kSumsBytes = lines_of_sums(S::window, S::stride) * 32 * kStripThreads;
  static constexpr int kRoom = kSumsBytes + kStripThreads / 32 * kStages * kStageBytes;

  const Channels& s;
  const PoolingArgs& a;
  int64_t image;
  unsigned char* room;
  int thread;

  // The number of a place has, from the top: the line, counted from the first that is seen; 2 bits that are 1 for the
  // columns of dx, 0 before and 2 behind them; 3 bits of column. sum() uses the position of the 2 bits for the warp
  // number of the block's four warps.
  static constexpr int kOfLine = 32, kOwn = 8;
  static_assert(kColumns <= kOwn && kBefore <= kOwn && kStripThreads == 128);
  MINIDNN_HD float& sum(int place) const {
    constexpr uint32_t kUsed = (lines_of_sums(S::window, S::stride) - 1) << 12 | (kOwn - 1) << 7;
    const uint32_t mine = uint32_t(thread & 31) << 2 | uint32_t(thread >> 5) << 10;
    return *reinterpret_cast<float*>(room + ((uint32_t(place) << 7 & kUsed) | mine));
  }
  // A stage's places, at the thread's channel.
  template <class U> MINIDNN_HD const U* mine(const unsigned char* from) const {
    return reinterpret_cast<const U*>(from) + (thread & 31);
  }
  // All lanes of a warp call it with the same item, which is a group of 32 channels, a span of columns and a span of
  // lines.
  MINIDNN_HD void pool(int item) const {
    uint32_t rest = uint32_t(item);
    const int group = s.by_channels.divmod(rest) * 32, lane = thread & 31, channels = s.vectors * kLanes<T>;
    const int column = s.by_columns.divmod(rest) * kColumns - s.w.before % S::stride;
    const int begin = int(rest) * s.lines - s.h.before % S::stride, end = min_of(begin + s.lines, s.h.size);
    const int q = (column + s.w.before) / S::stride - Strip::kOver, p = (begin + s.h.before) / S::stride - Strip::kOver;
    const int p_end = p + Strip::kOver + ceil_div(end - begin, S::stride), top = begin - kBefore;
    MINIDNN_UNROLL
    for (int k = 0; k < lines_of_sums(S::window, S::stride) * kOwn; ++k) sum(k / kOwn * kOfLine + k % kOwn) = 0;

    const Places<T, Strip::kSeen> of_x(lane, s.w.first(q), s.w.size, s.x_column);
    const Places<T, kWindows> of_dy(lane, q, s.w.count, s.y_column);
    const Places<Index, kWindows> of_indices(lane, q, s.w.count, s.indices_column);
    const T* const x = static_cast<const T*>(a.x) + image * s.x_image + group + of_x.channel;
    const T* const dy = static_cast<const T*>(a.dy) + image * s.y_image + group + of_dy.channel;
    const Index* const indices =
        static_cast<const Index*>(a.indices) + image * s.indices_image + group + of_indices.channel;
    unsigned char* const stages = room + kSumsBytes + (thread >> 5) * (kStages * kStageBytes);
    auto ask = [&](int p, int stage) {
      unsigned char* const to = stages + stage * kStageBytes;
      const int line = min_of(max_of(p, 0), s.h.count - 1);
      if (p < p_end && group + of_dy.channel < channels) {
        if constexpr (!kGiven) {
          MINIDNN_UNROLL
          for (int j = 0; j < S::stride; ++j)
            of_x.copy(x + min_of(max_of(s.h.first(p) + Strip::kKept + j, 0), s.h.size - 1) * s.x_line,
                      reinterpret_cast<T*>(to) + j * Strip::kSeen * 32);
        }
        of_dy.copy(dy + line * s.y_line, reinterpret_cast<T*>(to + kDyAt));
      }
      if (kGiven && p < p_end && group + of_indices.channel < channels)
        of_indices.copy(indices + line * s.indices_line, reinterpret_cast<Index*>(to + kIndicesAt));
      cp_async_commit_group();
    };
    constexpr int kEarlier = kGiven ? 0 : Strip::kEarlier;
    sync_lanes();
    MINIDNN_UNROLL
    for (int k = 0; k < kStages - 1; ++k) ask(p - kEarlier + k, k);
    int next = kStages - 1;
    const unsigned char* here = nullptr;
    auto step = [&](int p) {
      cp_async_wait_group<kStages - 2>();
      sync_lanes();
      ask(p + kStages - 1, next);
      next = next + 1 < kStages ? next + 1 : 0;
      here = stages + next * kStageBytes;
    };

    // For each window, the mask that selects the bits which tell whether a place is in dx; 0 if there is no such
    // window.
    int own[kWindows];
    MINIDNN_UNROLL
    for (int i = 0; i < kWindows; ++i) own[i] = uint32_t(q + i) < uint32_t(s.w.count) ? kOfLine - kOwn : 0;
    T* const dx = static_cast<T*>(a.out) + image * s.dx_image + group + lane + column * s.dx_column;
    auto add = [&](int p, const int(&place)[kWindows]) {
      const int wanted = uint32_t(p) < uint32_t(s.h.count) ? kOwn : -1;
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) {
        const float v = float(mine<T>(here + kDyAt)[i * 32]);
        if ((place[i] & own[i]) == wanted) sum(place[i]) += v;
      }
      MINIDNN_UNROLL
      for (int j = 0; j < S::stride; ++j) {
        const int line = s.h.first(p) + j;
        const bool is_here = group + lane < channels && max_of(begin, 0) <= line && line < end;
        T* to = dx + line * s.dx_line;
        MINIDNN_UNROLL
        for (int k = 0; k < kColumns; ++k, to += s.dx_column) {
          float& total = sum((line - top) * kOfLine + k);
          store_if(is_here && uint32_t(column + k) < uint32_t(s.w.size), to, T(total));
          total = 0;
        }
      }
    };
    if constexpr (kGiven) {
      for (int at = p; at < p_end; ++at) {
        step(at);
        int place[kWindows];
        const Index* const indices = mine<Index>(here + kIndicesAt);
        MINIDNN_UNROLL
        for (int i = 0; i < kWindows; ++i) {
          const Given<S> given(indices[i * 32], s.by_line, s.h.first(at), s.w.first(q + i));
          place[i] = given.seen ? (given.line - top) * kOfLine + kOwn + given.column - column : 0;
        }
        add(at, place);
      }
    } else {
      Strip(s.h, s.w, q)
          .each_line(
              p, p_end, step, [&](int, int j, int c) { return mine<T>(here)[(j * Strip::kSeen + c) * 32]; },
              [&](int line) { return (line - top) * kOfLine + kOwn - kBefore; },
              [&](int p, const typename Strip::Item(&found)[kWindows]) {
                int place[kWindows];
                MINIDNN_UNROLL
                for (int i = 0; i < kWindows; ++i) place[i] = Strip::R::place(found[i]);
                add(p, place);
              });
    }
    cp_async_wait_group<0>();
  }
};

}  // namespace minidnn::pooling
