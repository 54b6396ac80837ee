// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.conv.winograd, compiled once per instruction set. A SIMD vector holds adjacent channels or
// filters. The method is F(4 x 4, 3 x 3). It computes a tile of 4 x 4 results with 36 products instead of 144:
//   y = A^T ((G w G^T) * (B^T x B)) A
// in which * is the elementwise product. The interpolation points are 0, 1, -1, 1/2, -2 and infinity.
// cuda/conv/winograd/winograd_math.h has the matrices and the reasons for these points. Transformed data has 36 planes,
// one per element of a transformed patch. Strides and sizes of planes are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/cpu/isa.h"

namespace minidnn {

// The width of a tile of results, the width of the patch of inputs that a tile reads, and the number of elements of a
// transformed patch.
constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPlanes = 36;

// The number of channels in a partial sum. A sum of partial sums has a smaller rounding error than one long sum.
constexpr int64_t kWinogradChannels = 64;

// The arguments of WinogradKernels::multiply().
struct WinogradProduct {
  int64_t tiles, channels;
  // [point, tile, channel], where a point is one of the 36 transformed elements of a patch.
  const float* patches;
  int64_t patch_pitch, patch_plane;
  // [point, channel, filter], where a point is one of the 36 transformed elements of a window.
  const float* windows;
  int64_t window_plane;
  // [point, tile, filter], where a point is one of the 36 transformed elements of a tile.
  float* products;
  int64_t product_plane;
  // True if the products are added to `products`, false if they replace it.
  bool add;
};

struct WinogradKernels {
  // The number of floats in a vector, and the number of filters that are multiplied together.
  int64_t lanes, columns;
  // Transforms weights: computes to[point, n, j] = G w G^T for channels n < channels and each filter j. `point` is one
  // of the 36 elements of G w G^T. Element t of window n begins at w + (9 n + at[t]) * columns.
  void (*windows)(const float* w, const int64_t (&at)[9], int64_t channels, float* to, int64_t plane);
  // Transforms inputs: computes to[point, t * pitch + c] = B^T x B for patches t < tiles and all channels c. `point` is
  // one of the 36 elements of B^T x B. Row i of patch t begins at rows[i] + 4 t * pixel.
  void (*patches)(const float* const (&rows)[kWinogradPatch], int64_t pixel, int64_t channels, int64_t tiles, float* to,
                  int64_t pitch, int64_t plane);
  // Computes, or adds to `products` if `add` is true, for each of the 36 transformed elements (points):
  //   products[point, t, j] = sum over channels k of patches[point, t * patch_pitch + k] * windows[point, k, j]
  void (*multiply)(const WinogradProduct&);
  // Transforms products to results: computes y = A^T m A for tiles t < tiles. Pixel [i, j] of tile t is stored at to[i
  // * width + 4 t + j], which is a vector of filters. `to` has space for the last tile to exceed `width`.
  void (*results)(const float* from, int64_t plane, int64_t tiles, float* to, int64_t width);
};

MINIDNN_PER_ISA(WinogradKernels, winograd_kernels)

}  // namespace minidnn
