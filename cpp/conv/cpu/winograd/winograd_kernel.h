// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.conv.winograd, compiled once per instruction set. A vector holds neighbouring channels or
// neighbouring filters.
//
// F(4 x 4, 3 x 3): a tile of 4 x 4 results takes 36 products where the definition takes 144,
//   y = A^T ((G w G^T) * (B^T x B)) A
// The matrices are those of cuda/conv/winograd/winograd_math.h, which gives the reasons: interpolation at 0, 1, -1,
// 1/2, -2 and infinity. Transformed data has one plane for each of the 36 points. Steps and planes are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

// The side of a tile of results and of the patch of inputs that a tile reads, in pixels; the number of points of a
// patch.
constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPlanes = 36;

// Channels per partial sum: adding partial sums rounds less than one long sum.
constexpr int64_t kWinogradChannels = 64;

// The products of `tiles` transformed patches and the transformed windows of a panel of filters, at all 36 points.
struct WinogradProduct {
  int64_t tiles, channels;
  const float* patches;  // [point, tile, channel]; the tiles are patch_pitch apart
  int64_t patch_pitch, patch_plane;
  const float* windows;  // [point, channel, filter]
  int64_t window_plane;
  float* products;  // [point, tile, filter]
  int64_t product_plane;
  bool add;  // whether the sums are added to `products` or replace its elements
};

struct WinogradKernels {
  int64_t lanes, columns;  // floats of a vector; filters of a panel
  // Computes to[point, n, j] = G w G^T for the windows of `channels` channels and a panel of filters. Tap t of window n
  // is stored at w + (9 n + at[t]) * columns.
  void (*windows)(const float* w, const int64_t (&at)[9], int64_t channels, float* to, int64_t plane);
  // Computes to[point, t * pitch + c] = B^T x B for the patches that begin at rows[i] + 4 t * pixel, in whole vectors
  // of channels.
  void (*patches)(const float* const (&rows)[kWinogradPatch], int64_t pixel, int64_t channels, int64_t tiles, float* to,
                  int64_t pitch, int64_t plane);
  // Computes products[point, t, j] = sum over channels k of patches[point, t * patch_pitch + k] * windows[point, k, j].
  void (*multiply)(const WinogradProduct&);
  // Computes to[i * width + 4 t + j] = A^T m A of neighbouring tiles, one panel each, for 4 lines of `width` pixels.
  // The last tile's pixels beyond the width are overwritten by the next line, or end up after the last line.
  void (*results)(const float* from, int64_t plane, int64_t tiles, float* to, int64_t width);
};

MINIDNN_PER_ISA(WinogradKernels, winograd_kernels)

}  // namespace minidnn
