// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/winograd/winograd_kernel.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

constexpr int kVectors = 2, kColumns = kVectors * kFloats;
// The largest number of tiles that are multiplied together, equal to the rows of the GEMM micro-kernel.
constexpr int kMostRows = kVectorRegisters == 32 ? 12 : kVectorBytes == 32 ? 6 : 4;

// Computes y = B^T x, the one-dimensional transform of an input patch. The results share partial sums, so the transform
// takes few operations.
MINIDNN_HD void transform_patch(const Floats (&x)[6], Floats (&y)[6]) {
  const Floats a = x[4] - x[2], b = x[3] - x[1], even = a + 1.5f * x[3], odd = b + 1.5f * x[2];
  y[0] = x[0] - x[2] + a + 1.5f * b;
  y[1] = even + odd;
  y[2] = even - odd;
  y[3] = a + 2.0f * b;
  y[4] = a - 0.5f * b;
  y[5] = x[5] - x[3] - b + 1.5f * a;
}
// Computes y = G w, the one-dimensional transform of a window (weights).
MINIDNN_HD void transform_window(const Floats (&w)[3], Floats (&y)[6]) {
  const Floats outer = w[0] + w[2];
  y[0] = w[0];
  y[1] = (outer + w[1]) * (1 / 3.0f);
  y[2] = (w[1] - outer) * (1 / 3.0f);
  y[3] = (4.0f * w[0] + 2.0f * w[1] + w[2]) * (-4 / 15.0f);
  y[4] = (w[0] - 2.0f * w[1] + 4.0f * w[2]) * (1 / 15.0f);
  y[5] = w[2];
}
// Computes y = A^T m, the one-dimensional transform of products to results.
MINIDNN_HD void transform_result(const Floats (&m)[6], Floats (&y)[4]) {
  const Floats sum = m[1] + m[2], difference = m[1] - m[2];
  y[0] = m[0] + sum + m[3] + m[4];
  y[1] = difference + 0.5f * m[3] - 2.0f * m[4];
  y[2] = sum + 0.25f * m[3] + 4.0f * m[4];
  y[3] = difference + 0.125f * m[3] - 8.0f * m[4] + m[5];
}

// Applies a one-dimensional transform to a square matrix of vectors: first along its columns, then along its rows.
// Calls out(i, j, v) for each element of the kOut x kOut result.
template <int kIn, int kOut, class In, class Out>
MINIDNN_HD void transform_both_sides(void (*transform)(const Floats (&)[kIn], Floats (&)[kOut]), In in, Out out) {
  Floats half[kOut][kIn];
#pragma GCC unroll 6
  for (int j = 0; j < kIn; ++j) {
    Floats column[kIn], transformed[kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) column[i] = in(i, j);
    transform(column, transformed);
#pragma GCC unroll 6
    for (int i = 0; i < kOut; ++i) half[i][j] = transformed[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kOut; ++i) {
    Floats transformed[kOut];
    transform(half[i], transformed);
#pragma GCC unroll 6
    for (int j = 0; j < kOut; ++j) out(i, j, transformed[j]);
  }
}

void windows(const float* w, const int64_t (&at)[9], int64_t channels, float* to, int64_t plane) {
  for (int64_t n = 0; n < channels; ++n, w += 9 * kColumns, to += kColumns)
    for (int64_t v = 0; v < kColumns; v += kFloats)
      transform_both_sides<3, 6>(
          transform_window, [&](int i, int j) { return load(w + at[3 * i + j] * kColumns + v); },
          [&](int i, int j, Floats out) { store(to + (6 * i + j) * plane + v, out); });
}

void patches(const float* const (&rows)[kWinogradPatch], int64_t pixel, int64_t channels, int64_t tiles, float* to,
             int64_t pitch, int64_t plane) {
  for (int64_t t = 0; t < tiles; ++t)
    for (int64_t c = 0; c < channels; c += kFloats) {
      const int64_t at = kWinogradTile * t * pixel + c;
      float* const out_at = to + t * pitch + c;
      transform_both_sides<6, 6>(
          transform_patch, [&](int i, int j) { return load(rows[i] + at + j * pixel); },
          [&](int i, int j, Floats out) { store(out_at + (6 * i + j) * plane, out); });
    }
}

// Multiplies kRows transformed patches by a panel of transformed weights, at one of the 36 points of the Winograd
// transform.
template <int kRows> void block(int64_t channels, const float* a, int64_t pitch, const float* b, float* to, bool add) {
  Floats tile[kRows][kVectors] = {};
  const float* row[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) row[i] = a + i * pitch;
#pragma GCC unroll 4
  for (int64_t k = 0; k < channels; ++k, b += kColumns) {
    Floats v[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) v[j] = load(b + j * kFloats);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) tile[i][j] += row[i][k] * v[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      float* const out = to + i * kColumns + j * kFloats;
      store(out, add ? load(out) + tile[i][j] : tile[i][j]);
    }
}
void multiply(const WinogradProduct& product) {
  // A local copy, whose members the compiler can keep in registers.
  const WinogradProduct p = product;
  for (int64_t point = 0; point < kWinogradPlanes; ++point) {
    const float *a = p.patches + point * p.patch_plane, *b = p.windows + point * p.window_plane;
    float* to = p.products + point * p.product_plane;
    for (int64_t k = 0; k < p.channels; k += kWinogradChannels)
      // The groups of tiles have nearly equal sizes. In a small group, each addition would wait for the previous one.
      for_balanced_chunks<kMostRows>(p.tiles, [&](int64_t t, auto rows) {
        block<rows.value>(min_of(kWinogradChannels, p.channels - k), a + t * p.patch_pitch + k, p.patch_pitch,
                          b + k * kColumns, to + t * kColumns, p.add || k > 0);
      });
  }
}

void results(const float* from, int64_t plane, int64_t tiles, float* to, int64_t width) {
  // From the last tile to the first, because the last tile may write pixels beyond the end of an image row. An earlier
  // tile overwrites them.
  for (int64_t t = tiles - 1; t >= 0; --t)
    for (int64_t v = 0; v < kColumns; v += kFloats)
      transform_both_sides<6, 4>(
          transform_result, [&](int i, int j) { return load(from + (6 * i + j) * plane + t * kColumns + v); },
          [&](int i, int j, Floats out) { store(to + (i * width + kWinogradTile * t + j) * kColumns + v, out); });
}

}  // namespace

extern const WinogradKernels winograd_kernels;
const WinogradKernels winograd_kernels = {kFloats, kColumns, windows, patches, multiply, results};

}  // namespace minidnn::MINIDNN_ISA
