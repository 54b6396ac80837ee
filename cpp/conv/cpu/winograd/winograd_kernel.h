// SPDX-License-Identifier: Apache-2.0
// The inner loops of cpu.conv.winograd, compiled once per instruction set. A SIMD vector holds neighbouring channels or
// neighbouring filters. The method is F(4 x 4, 3 x 3). It computes a tile of 4 x 4 results with 36 products instead of
// 144, by the formula
//   y = A^T ((G w G^T) * (B^T x B)) A
// in which * is the elementwise product. The interpolation points are 0, 1, -1, 1/2, -2 and infinity.
// cuda/conv/winograd/winograd_math.h has the matrices and the reasons for these points. Transformed data has 36 points,
// and each point has its own matrix, which is called a plane. Strides and sizes of planes are in elements.
#pragma once
#include <cstdint>

#include "cpp/core/cpu/isa.h"

namespace minidnn {

// Constants of F(4 x 4, 3 x 3). kWinogradTile is the width and height of a tile of results, in pixels. kWinogradPatch
// is the width and height of the patch of inputs that a tile reads. kWinogradPlanes is the number of points of a
// transformed patch.
constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPlanes = 36;

// The number of channels that are added up in one partial sum. A sum of partial sums has a smaller rounding error than
// one long sum.
constexpr int64_t kWinogradChannels = 64;

// The arguments of WinogradKernels::multiply(). This function multiplies `tiles` transformed patches by the transformed
// windows of a panel of filters, at each of the 36 points.
struct WinogradProduct {
  int64_t tiles, channels;
  // The transformed patches [point, tile, channel], where a point is one of the 36 transformed elements of a patch. The
  // distance of neighbouring tiles is patch_pitch elements.
  const float* patches;
  int64_t patch_pitch, patch_plane;
  // The transformed weights [point, channel, filter], where a point is one of the 36 transformed elements of a window.
  const float* windows;
  int64_t window_plane;
  // The products, summed over the channels: [point, tile, filter]. A point is one of the 36 transformed elements of a
  // tile.
  float* products;
  int64_t product_plane;
  // True if the sums are added to `products`, false if they replace the elements of `products`.
  bool add;
};

struct WinogradKernels {
  // `lanes` is the number of floats in a vector. `columns` is the number of filters in a panel (filters that are
  // multiplied together).
  int64_t lanes, columns;
  // Transforms weights: computes to[point, n, j] = G w G^T for the windows of all channels n < channels and all filters
  // j of a panel (group of filters). `point` is the index of one of the 36 elements of G w G^T. Element t of window n
  // is read from w + (9 n + at[t]) * columns.
  void (*windows)(const float* w, const int64_t (&at)[9], int64_t channels, float* to, int64_t plane);
  // Transforms inputs: computes to[point, t * pitch + c] = B^T x B for all patches t < tiles and all channels c.
  // `point` is the index of one of the 36 elements of B^T x B. Row i of patch t begins at rows[i] + 4 t * pixel, where
  // `pixel` is the distance between neighbouring pixels. Channels are read and written in whole vectors.
  void (*patches)(const float* const (&rows)[kWinogradPatch], int64_t pixel, int64_t channels, int64_t tiles, float* to,
                  int64_t pitch, int64_t plane);
  // Multiplies transformed patches by transformed windows, each of which has 36 elements (points). Computes
  // products[point, t, j] as the sum over channels k of
  //   patches[point, t * patch_pitch + k] * windows[point, k, j]
  // If `add` is true, adds this sum to products[point, t, j].
  void (*multiply)(const WinogradProduct&);
  // Transforms products to results: computes y = A^T m A for all tiles t < tiles and all filters of a panel. Pixel [i,
  // j] of tile t is stored at to[i * width + 4 t + j], which is a vector of filters. The last tile may have pixels
  // beyond `width`. The next image row overwrites these pixels. After the last image row, `to` has space for them.
  void (*results)(const float* from, int64_t plane, int64_t tiles, float* to, int64_t width);
};

MINIDNN_PER_ISA(WinogradKernels, winograd_kernels)

}  // namespace minidnn
