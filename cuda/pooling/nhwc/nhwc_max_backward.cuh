// SPDX-License-Identifier: Apache-2.0
// Gradients of maxima for tensors with contiguous channels (NHWC) and windows of compile-time size. A strip is the part
// of dx that one warp computes, such as 64 rows of 8 columns for 32 channels, one channel per lane. A stage is the
// shared memory for one row of windows.
#pragma once
#include "cuda/pooling/block_copy.cuh"
#include "cuda/pooling/nhwc/nhwc_params.h"
#include "cuda/pooling/register_strip.cuh"

namespace minidnn::cuda::pooling {

// Copies kN adjacent columns of a row, with 32 channels of each column, by a warp in 16-byte words. Outside the image,
// the nearest column is copied.
template <class U, int kN> struct WarpLineCopy {
  static constexpr int kLanes = 16 / int(sizeof(U)), kVectors = 32 / kLanes;
#ifdef __CUDA_ARCH__
  static constexpr int kCopiers = 32;
#else
  // The test on the CPU runs threads one after another, so each thread copies all data that it reads.
  static constexpr int kCopiers = kVectors;
#endif
  static constexpr int kCopies = (kN * kVectors + kCopiers - 1) / kCopiers;
  // `channel` is the thread's first channel, counted from that of the warp.
  int copier, channel;
  uint32_t offset[kCopies];

  MINIDNN_HD WarpLineCopy(int lane, int first, int size, int64_t column_stride)
      : copier(kCopiers == 32 ? lane : lane / kLanes), channel(copier % kVectors * kLanes) {
    MINIDNN_UNROLL
    for (int m = 0; m < kCopies; ++m) {
      const int at = first + (m * kCopiers + copier) / kVectors;
      offset[m] = uint32_t(min_of(max_of(at, 0), size - 1)) * uint32_t(column_stride);
    }
  }
  // Copies this thread's part of a row. `line` is the address of its first channel in the row.
  MINIDNN_HD void copy(const U* line, U* to) const {
    MINIDNN_UNROLL
    for (int m = 0; m < kCopies; ++m)
      if ((m + 1) * kCopiers <= kN * kVectors || m * kCopiers + copier < kN * kVectors)
        copy_vector(to + (m * kCopiers + copier) * kLanes, line + offset[m]);
  }
};

// Computes strips of dx. Each window adds its dy to the dx of its maximum, if this dx is in the strip. Rows of dy, and
// of x or of indices, are copied to shared memory some iterations before their use. Shared memory has the sums of a few
// rows of dx at a time. A lane updates only the sums of its own channel.
template <class T, class S, int kIndexBytes> struct NhwcMaxBackward {
  static constexpr bool kGiven = kIndexBytes > 0;
  using Index = typename IndexOf<kIndexBytes>::type;
  static constexpr int kSteps = strip_steps(S::stride), kColumns = kSteps * S::stride;
  static constexpr int kWindows = kSteps + (S::window - 1) / S::stride;
  using Strip = pooling::Strip<T, S, kWindows>;
  static constexpr int kBefore = Strip::kOver * S::stride;
  static constexpr int kStages = strip_stages(S::window, sizeof(T), kGiven);
  static constexpr StripLayout kLayout{S::window, S::stride, int(sizeof(T)), kIndexBytes};
  static constexpr int kDyAt = kLayout.dy_at, kIndicesAt = kLayout.indices_at, kStageBytes = kLayout.stage_bytes;
  static constexpr int kSumsBytes = kLayout.sums_bytes;

  const NhwcParams& s;
  const PoolingArgs& a;
  int64_t image;
  unsigned char* smem;
  int thread;

  // Returns the sum of the element of dx with number `slot`. Its lowest 3 bits are the column. The next 2 bits are 0, 1
  // or 2 for columns before, in or after the strip; only columns in the strip have sums. The upper bits are the row,
  // counted from the first row of x that the strip reads.
  static constexpr int kOfLine = 32, kOwn = 8;
  static_assert(kColumns <= kOwn && kBefore <= kOwn && kStripThreads == 128);
  MINIDNN_HD float& sum(int slot) const {
    constexpr uint32_t kUsed = (lines_of_sums(S::window, S::stride) - 1) << 12 | (kOwn - 1) << 7;
    const uint32_t own = uint32_t(thread & 31) << 2 | uint32_t(thread >> 5) << 10;
    return *reinterpret_cast<float*>(smem + ((uint32_t(slot) << 7 & kUsed) | own));
  }
  // Returns the address of this thread's channel in a stage.
  template <class U> MINIDNN_HD const U* at_channel(const unsigned char* from) const {
    return reinterpret_cast<const U*>(from) + (thread & 31);
  }
  // Computes strip number `item` of dx, for 32 channels. All lanes of a warp must call this function with the same
  // index.
  MINIDNN_HD void pool(int item) const {
    uint32_t rest = uint32_t(item);
    const int group = s.by_channels.divmod(rest) * 32, lane = thread & 31, channels = s.vectors * kLanes<T>;
    const int column = s.by_columns.divmod(rest) * kColumns - s.w.before % S::stride;
    const int begin = int(rest) * s.tile_lines - s.h.before % S::stride, end = min_of(begin + s.tile_lines, s.h.size);
    const int q = (column + s.w.before) / S::stride - Strip::kOver, p = (begin + s.h.before) / S::stride - Strip::kOver;
    const int p_end = p + Strip::kOver + ceil_div(end - begin, S::stride), top = begin - kBefore;
    MINIDNN_UNROLL
    for (int k = 0; k < lines_of_sums(S::window, S::stride) * kOwn; ++k) sum(k / kOwn * kOfLine + k % kOwn) = 0;

    const WarpLineCopy<T, Strip::kSeen> of_x(lane, s.w.first(q), s.w.size, s.x_column);
    const WarpLineCopy<T, kWindows> of_dy(lane, q, s.w.count, s.y_column);
    const WarpLineCopy<Index, kWindows> of_indices(lane, q, s.w.count, s.indices_column);
    const T* const x = static_cast<const T*>(a.x) + image * s.x_image + group + of_x.channel;
    const T* const dy = static_cast<const T*>(a.dy) + image * s.y_image + group + of_dy.channel;
    const Index* const indices =
        static_cast<const Index*>(a.indices) + image * s.indices_image + group + of_indices.channel;
    unsigned char* const stages = smem + kSumsBytes + (thread >> 5) * (kStages * kStageBytes);
    auto load_stage = [&](int p, int stage) {
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
    for (int k = 0; k < kStages - 1; ++k) load_stage(p - kEarlier + k, k);
    int next = kStages - 1;
    const unsigned char* here = nullptr;
    auto step = [&](int p) {
      cp_async_wait_group<kStages - 2>();
      sync_lanes();
      load_stage(p + kStages - 1, next);
      next = next + 1 < kStages ? next + 1 : 0;
      here = stages + next * kStageBytes;
    };

    // For each window, the mask that tests whether the column of its maximum is in the strip (see sum()), or 0 if the
    // window does not exist.
    int own[kWindows];
    MINIDNN_UNROLL
    for (int i = 0; i < kWindows; ++i) own[i] = uint32_t(q + i) < uint32_t(s.w.count) ? kOfLine - kOwn : 0;
    T* const dx = static_cast<T*>(a.out) + image * s.dx_image + group + lane + column * s.dx_column;
    auto add = [&](int p, const int(&slot)[kWindows]) {
      const int wanted = uint32_t(p) < uint32_t(s.h.count) ? kOwn : -1;
      MINIDNN_UNROLL
      for (int i = 0; i < kWindows; ++i) {
        const float v = float(at_channel<T>(here + kDyAt)[i * 32]);
        if ((slot[i] & own[i]) == wanted) sum(slot[i]) += v;
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
        int slot[kWindows];
        const Index* const indices = at_channel<Index>(here + kIndicesAt);
        MINIDNN_UNROLL
        for (int i = 0; i < kWindows; ++i) {
          const Given<S> given(indices[i * 32], s.by_x_columns, s.h.first(at), s.w.first(q + i));
          slot[i] = given.seen ? (given.line - top) * kOfLine + kOwn + given.column - column : 0;
        }
        add(at, slot);
      }
    } else {
      Strip(s.h, s.w, q)
          .each_line(
              p, p_end, step, [&](int, int j, int c) { return at_channel<T>(here)[(j * Strip::kSeen + c) * 32]; },
              [&](int line) { return (line - top) * kOfLine + kOwn - kBefore; },
              [&](int p, const typename Strip::Item(&found)[kWindows]) {
                int slot[kWindows];
                MINIDNN_UNROLL
                for (int i = 0; i < kWindows; ++i) slot[i] = Strip::R::index(found[i]);
                add(p, slot);
              });
    }
    cp_async_wait_group<0>();
  }
};

}  // namespace minidnn::cuda::pooling
