// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/groups_kernel.h"
#include "cpp/cpu/vector.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kN = kLanes<float>;

// Channel i of each lane's group.
template <int size> Vector<float> spread(Vector<float> x, int i) {
  if constexpr (size == 1) return x;
  typedef int Lanes __attribute__((vector_size(kVectorBytes)));
  Lanes from;
  for (int lane = 0; lane < kN; ++lane) from[lane] = lane / size * size + i;
  return __builtin_shuffle(x, from);
}

// Of several pixels at a time: each vector of weights is loaded once for all of them.
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

// Of one pixel at a time, several vectors of channels, so that additions need not wait for each other.
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

template <int size, int kPixels = size == 1 ? 8 : 4>
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

// Sums of some taps stay in registers while the pixels go by.
template <int size, int kTaps>
void some_filters(const int64_t* at, const float* x, int64_t x_step, const float* dy, int64_t dy_step, int64_t pixels,
                  float* sums) {
  Vector<float> tile[kTaps][size];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) tile[t][i] = load(sums + (t * size + i) * kN);
  for (int64_t p = 0; p < pixels; ++p, x += x_step, dy += dy_step) {
    const Vector<float> gradient = load(dy);
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      const Vector<float> v = load(x + at[t]);
#pragma GCC unroll 8
      for (int i = 0; i < size; ++i) tile[t][i] += spread<size>(v, i) * gradient;
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
#pragma GCC unroll 8
    for (int i = 0; i < size; ++i) store(sums + (t * size + i) * kN, tile[t][i]);
}

template <int size, int kTaps = 8 / size>
void filters_of(const int64_t* at, int64_t taps, const float* x, int64_t x_step, const float* dy, int64_t dy_step,
                int64_t pixels, float* sums) {
  for (; taps >= kTaps; taps -= kTaps, at += kTaps, sums += kTaps * size * kN)
    some_filters<size, kTaps>(at, x, x_step, dy, dy_step, pixels, sums);
  if constexpr (kTaps > 1) filters_of<size, kTaps / 2>(at, taps, x, x_step, dy, dy_step, pixels, sums);
}

void pixels(int64_t size, const int64_t* at, const int64_t* w_at, int64_t taps, const float* x, int64_t x_step,
            const float* w, int64_t w_step, float* y, int64_t y_step, int64_t n, int64_t channels) {
  if (size == 1) pixels_of<1>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if (size == 2) pixels_of<2>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if (size == 4) pixels_of<4>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
  if constexpr (kN >= 8)
    if (size == 8) pixels_of<8>(at, w_at, taps, x, x_step, w, w_step, y, y_step, n, channels);
}

void filters(int64_t size, const int64_t* at, int64_t taps, const float* x, int64_t x_step, const float* dy,
             int64_t dy_step, int64_t n, float* sums) {
  if (size == 1) filters_of<1>(at, taps, x, x_step, dy, dy_step, n, sums);
  if (size == 2) filters_of<2>(at, taps, x, x_step, dy, dy_step, n, sums);
  if (size == 4) filters_of<4>(at, taps, x, x_step, dy, dy_step, n, sums);
  if constexpr (kN >= 8)
    if (size == 8) filters_of<8>(at, taps, x, x_step, dy, dy_step, n, sums);
}

}  // namespace

extern const GroupsKernels groups_kernels;
const GroupsKernels groups_kernels = {kN, pixels, filters};

}  // namespace minidnn::MINIDNN_ISA
