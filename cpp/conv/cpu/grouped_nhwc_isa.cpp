// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/grouped_nhwc_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kN = kLanes<float>;

// Puts channel i of each group into all lanes of that group.
template <int size> Vector<float> spread(Vector<float> x, int i) {
  if constexpr (size == 1) return x;
  typedef int Lanes __attribute__((vector_size(kVectorBytes)));
  Lanes from;
  for (int lane = 0; lane < kN; ++lane) from[lane] = lane / size * size + i;
  return __builtin_shuffle(x, from);
}

// Computes several pixels at a time: each vector of weights is loaded once for all of them.
template <int size, int kPixels>
void block(const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step, const float* w,
           int64_t w_step, float* y, int64_t y_step) {
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

// Computes one pixel, several vectors of channels at a time: their additions do not wait for each other.
template <int size, int kVectors>
void across(const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, const float* w, int64_t w_step,
            float* y) {
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

// Computes enough pixels at a time that additions do not wait for each other.
template <int size, int kPixels = size < 8 || kVectorRegisters == 32 ? 8 : 4>
void pixels_of(const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step, const float* w,
               int64_t w_step, float* y, int64_t y_step, int64_t pixels, int64_t channels) {
  constexpr int kAcross = 4;
  for (; pixels >= kPixels; pixels -= kPixels, x += kPixels * x_step, y += kPixels * y_step) {
    int64_t c = 0;
    if constexpr (kPixels == 1)
      for (; c + kAcross * kN <= channels; c += kAcross * kN)
        across<size, kAcross>(at, w_at, taps, x + c, w + c, w_step, y + c);
    for (; c < channels; c += kN) block<size, kPixels>(at, w_at, taps, x + c, x_step, w + c, w_step, y + c, y_step);
  }
  if constexpr (kPixels > 1)
    pixels_of<size, kPixels / 2>(at, w_at, taps, x, x_step, w, w_step, y, y_step, pixels, channels);
}

template <int kHeight>
void lines_by(const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_row, int64_t x_step,
              int64_t first, int64_t end, const float* w, int64_t w_row, float* y, int64_t y_row, int64_t y_step,
              int64_t pixels, int64_t channels) {
  for (int64_t p = 0; p < pixels; ++p, y += y_step)
    for (int64_t c = 0; c < channels; c += kN) {
      Vector<float> sums[kGroupsRows] = {};
      for (int64_t t = 0; t < taps; ++t) {
        int64_t from = at[t] + p * x_step + c;
        const float* weights = w + w_at[t] + c;
        Vector<float> row[kHeight];
#pragma GCC unroll 8
        for (int i = 0; i < kHeight; ++i) row[i] = load(weights + i * w_row);
#pragma GCC unroll 16
        for (int line = 0; line < kGroupsRows + kHeight - 1; ++line, from += x_row) {
          if (line < first || line >= end) continue;
          const Vector<float> v = keep_in_register(load(x + from));
#pragma GCC unroll 8
          for (int i = 0; i < kHeight; ++i)
            if (line >= i && line - i < kGroupsRows) sums[line - i] += v * row[i];
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kGroupsRows; ++r) store(y + r * y_row + c, sums[r]);
    }
}
void lines(int64_t height, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_row,
           int64_t x_step, int64_t first, int64_t end, const float* w, int64_t w_row, float* y, int64_t y_row,
           int64_t y_step, int64_t pixels, int64_t channels) {
  const auto by = height == 3 ? lines_by<3> : height == 5 ? lines_by<5> : lines_by<7>;
  by(at, w_at, taps, x, x_row, x_step, first, end, w, w_row, y, y_row, y_step, pixels, channels);
}

// Keeps the sums of kTaps taps in registers while looping over the pixels.
template <int size, int kTaps>
void some_filters(const int64_t* at, const int64_t* place, const float* x, int64_t x_row, int64_t x_step,
                  const float* dy, int64_t dy_row, int64_t dy_step, int64_t rows, int64_t pixels, float* sums) {
  Vector<float> tile[kTaps][size];
#pragma GCC unroll 16
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) tile[t][i] = load(sums + (place[t] * size + i) * kN);
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
    for (int i = 0; i < size; ++i) store(sums + (place[t] * size + i) * kN, tile[t][i]);
}

template <int size>
void filters_of(const int64_t* at, const int64_t* place, int64_t taps, const float* x, int64_t x_row, int64_t x_step,
                const float* dy, int64_t dy_row, int64_t dy_step, int64_t rows, int64_t pixels, float* sums) {
  for_balanced_chunks<(kVectorRegisters == 32 ? 12 : 8) / size>(taps, [&](int64_t first, auto count) {
    some_filters<size, count.value>(at + first, place + first, x, x_row, x_step, dy, dy_row, dy_step, rows, pixels,
                                    sums);
  });
}

void pixels(int64_t size, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step,
            const float* w, int64_t w_step, float* y, int64_t y_step, int64_t n, int64_t channels) {
  if (size == 1) pixels_of<1>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if (size == 2) pixels_of<2>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if (size == 4) pixels_of<4>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if constexpr (kN >= 8)
    if (size == 8) pixels_of<8>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
}

void filters(int64_t size, const int64_t* at, const int64_t* place, int64_t taps, const float* x, int64_t x_row,
             int64_t x_step, const float* dy, int64_t dy_row, int64_t dy_step, int64_t rows, int64_t pixels,
             float* sums) {
  auto of = [&](auto function) {
    function(at, place, taps, x, x_row, x_step, dy, dy_row, dy_step, rows, pixels, sums);
  };
  if (size == 1) of(filters_of<1>);
  if (size == 2) of(filters_of<2>);
  if (size == 4) of(filters_of<4>);
  if constexpr (kN >= 8)
    if (size == 8) of(filters_of<8>);
}

}  // namespace

extern const GroupedNhwcKernels grouped_nhwc_kernels;
const GroupedNhwcKernels grouped_nhwc_kernels = {kN, pixels, lines, filters};

}  // namespace minidnn::MINIDNN_ISA
