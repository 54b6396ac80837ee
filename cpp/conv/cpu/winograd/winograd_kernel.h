// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.conv.winograd, compiled once per instruction set. A SIMD vector holds neighbouring channels or
// neighbouring filters.
// The method is F(4 x 4, 3 x 3): a tile of 4 x 4 results takes 36 products where the definition takes 144.
//   y = A^T ((G w G^T) * (B^T x B)) A
// The interpolation points are 0, 1, -1, 1/2, -2 and infinity. cuda/conv/winograd/winograd_math.h has the matrices and
// the reasons for these points. Transformed data has one matrix ("plane") for each of the 36 points. Steps and plane
// sizes are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/isa.h"

namespace minidnn {

// kWinogradTile: side of a tile of results, in pixels. kWinogradPatch: side of the patch of inputs that a tile reads.
// kWinogradPlanes: number of points of a transformed patch.
constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPlanes = 36;

// Number of channels that are added up in one partial sum. Adding partial sums has a smaller rounding error than one
// long sum.
constexpr int64_t kWinogradChannels = 64;

// The arguments of WinogradKernels::multiply. It multiplies `tiles` transformed patches by the transformed windows of a
// panel of filters, at each of the 36 points.
struct WinogradProduct {
  int64_t tiles, channels;
  // transformed patches [point, tile, channel]; neighbouring tiles are patch_pitch elements apart
  const float* patches;
  int64_t patch_pitch, patch_plane;
  const float* windows;  // transformed weights [point, channel, filter]
  int64_t window_plane;
  float* products;  // the sums [point, tile, filter]
  int64_t product_plane;
  bool add;  // true if the sums are added to `products`, false if they replace its elements
};

struct WinogradKernels {
  int64_t lanes, columns;  // lanes: floats of a vector. columns: filters of a panel.
  // Transforms weights: computes to[point, n, j] = G w G^T for the windows of `channels` channels n and all filters j
  // of a panel. Element t of window n is stored at w + (9 n + at[t]) * columns.
  void (*windows)(const float* w, const int64_t (&at)[9], int64_t channels, float* to, int64_t plane);
  // Transforms inputs: computes to[point, t * pitch + c] = B^T x B for `tiles` patches t and all channels c. Line i of
  // patch t begins at rows[i] + 4 t * pixel. Channels are read and written in whole vectors.
  void (*patches)(const float* const (&rows)[kWinogradPatch], int64_t pixel, int64_t channels, int64_t tiles, float* to,
                  int64_t pitch, int64_t plane);
  // Computes products[point, t, j] = sum over channels k of patches[point, t * patch_pitch + k] * windows[point, k, j],
  // or adds this sum to products[point, t, j].
  void (*multiply)(const WinogradProduct&);
  // Transforms sums to results: computes y = A^T m A for `tiles` neighbouring tiles t and all filters of a panel. Pixel
  // [i, j] of tile t goes to to[i * width + 4 t + j], which is a vector of filters. The last tile may have pixels
  // beyond `width`. The next line overwrites them; after the last line, `to` has space for them.
  void (*results)(const float* from, int64_t plane, int64_t tiles, float* to, int64_t width);
};

MINIDNN_PER_ISA(WinogradKernels, winograd_kernels)

}  // namespace minidnn
