// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/depthwise/grouped_nhwc_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kN = kLanes<float>;

// In each group of `size` lanes, spread() copies lane i to all lanes of the group.
template <int size> Vector<float> spread(Vector<float> x, int i) {
  if constexpr (size == 1) return x;
  typedef int Lanes __attribute__((vector_size(kVectorBytes)));
  Lanes from;
  for (int lane = 0; lane < kN; ++lane) from[lane] = lane / size * size + i;
  return __builtin_shuffle(x, from);
}

// Computes kPixels pixels together, so that each vector of weights is loaded once for all of them.
template <int size, int kPixels>
void block(const GroupedNhwcSums& o, int64_t c) {
  const int64_t *at = o.at, *w_at = o.w_at, taps = o.taps, x_step = o.x_step, w_step = o.w_step, y_step = o.y_step;
  const float *x = o.x + c, *w = o.w + c;
  float* y = o.y + c;
  Vector<float> sums[kPixels] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const float *from = x + at[t], *weights = w + w_at[t];
    Vector<float> row[size];
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) row[i] = load(weights + i * w_step);
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p) {
      const Vector<float> v = load(from + p * x_step);
#pragma GCC unroll 8
      for (int i = 0; i < size; ++i) sums[p] += spread<size>(v, i) * row[i];
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) store(y + p * y_step, sums[p]);
}

// Computes kVectors vectors of channels of one pixel together. Each vector has its own sum, so an addition to one sum
// need not wait for the additions to the remaining sums.
template <int size, int kVectors>
void across(const GroupedNhwcSums& o, int64_t c) {
  const int64_t *at = o.at, *w_at = o.w_at, taps = o.taps, w_step = o.w_step;
  const float *x = o.x + c, *w = o.w + c;
  float* y = o.y + c;
  Vector<float> sums[kVectors] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const float *from = x + at[t], *weights = w + w_at[t];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Vector<float> values = load(from + v * kN);
#pragma GCC unroll 8
      for (int i = 0; i < size; ++i) sums[v] += spread<size>(values, i) * load(weights + i * w_step + v * kN);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) store(y + v * kN, sums[v]);
}

// Computes kPixels pixels together. Their additions go to different sums and hide each other's latency.
template <int size, int kPixels = size < 8 || kVectorRegisters == 32 ? 8 : 4>
void pixels_of(GroupedNhwcSums o) {
  constexpr int kAcross = 4;
  for (; o.pixels >= kPixels; o.pixels -= kPixels, o.x += kPixels * o.x_step, o.y += kPixels * o.y_step) {
    int64_t c = 0;
    if constexpr (kPixels == 1)
      for (; c + kAcross * kN <= o.channels; c += kAcross * kN) across<size, kAcross>(o, c);
    for (; c < o.channels; c += kN) block<size, kPixels>(o, c);
  }
  if constexpr (kPixels > 1) pixels_of<size, kPixels / 2>(o);
}

template <int kHeight>
void lines_by(const GroupedNhwcSums& o) {
  const int64_t *at = o.at, *w_at = o.w_at, taps = o.taps, x_row = o.x_row, x_step = o.x_step, w_row = o.w_step;
  const int64_t first = o.first, end = o.end, y_row = o.y_row, y_step = o.y_step, pixels = o.pixels,
                channels = o.channels;
  const float *x = o.x, *w = o.w;
  float* y = o.y;
  for (int64_t p = 0; p < pixels; ++p, y += y_step)
    for (int64_t c = 0; c < channels; c += kN) {
      Vector<float> sums[kGroupedNhwcRows] = {};
      for (int64_t t = 0; t < taps; ++t) {
        int64_t from = at[t] + p * x_step + c;
        const float* weights = w + w_at[t] + c;
        Vector<float> row[kHeight];
#pragma GCC unroll 8
        for (int i = 0; i < kHeight; ++i) row[i] = load(weights + i * w_row);
#pragma GCC unroll 16
        for (int line = 0; line < kGroupedNhwcRows + kHeight - 1; ++line, from += x_row) {
          if (line < first || line >= end) continue;
          const Vector<float> v = keep_in_register(load(x + from));
#pragma GCC unroll 8
          for (int i = 0; i < kHeight; ++i)
            if (line >= i && line - i < kGroupedNhwcRows) sums[line - i] += v * row[i];
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kGroupedNhwcRows; ++r) store(y + r * y_row + c, sums[r]);
    }
}
void lines(const GroupedNhwcSums& o) {
  const auto by = o.height == 3 ? lines_by<3> : o.height == 5 ? lines_by<5> : lines_by<7>;
  by(o);
}

// Adds products to the sums of dw for kTaps taps (window elements). The sums stay in registers during the loop over the
// pixels.
template <int size, int kTaps>
void some_filters(const GroupedNhwcFilterSums& o, int64_t first) {
  const int64_t *at = o.at + first, *slot = o.slot + first, pixels = o.pixels;
  const int64_t x_row = o.x_row, x_step = o.x_step, dy_row = o.dy_row, dy_step = o.dy_step;
  const float *x = o.x, *dy = o.dy;
  float* sums = o.sums;
  int64_t rows = o.rows;
  Vector<float> tile[kTaps][size];
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) tile[t][i] = load(sums + (slot[t] * size + i) * kN);
  for (; rows > 0; --rows, x += x_row, dy += dy_row)
    for (int64_t p = 0; p < pixels; ++p) {
      const Vector<float> gradient = keep_in_register(load(dy + p * dy_step));
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) {
        const Vector<float> v = load(x + at[t] + p * x_step);
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) tile[t][i] += spread<size>(v, i) * gradient;
      }
    }
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) store(sums + (slot[t] * size + i) * kN, tile[t][i]);
}

template <int size> void filters_of(const GroupedNhwcFilterSums& o) {
  for_balanced_chunks<(kVectorRegisters == 32 ? 12 : 8) / size>(
      o.taps, [&](int64_t first, auto count) { some_filters<size, count.value>(o, first); });
}

void pixels(int64_t size, const GroupedNhwcSums& o) {
  if (size == 1) pixels_of<1>(o);
  if (size == 2) pixels_of<2>(o);
  if (size == 4) pixels_of<4>(o);
  if constexpr (kN >= 8)
    if (size == 8) pixels_of<8>(o);
}

void filters(int64_t size, const GroupedNhwcFilterSums& o) {
  if (size == 1) filters_of<1>(o);
  if (size == 2) filters_of<2>(o);
  if (size == 4) filters_of<4>(o);
  if constexpr (kN >= 8)
    if (size == 8) filters_of<8>(o);
}

}  // namespace

extern const GroupedNhwcKernels grouped_nhwc_kernels;
const GroupedNhwcKernels grouped_nhwc_kernels = {kN, pixels, lines, filters};

}  // namespace minidnn::MINIDNN_ISA
