// SPDX-License-Identifier: Apache-2.0
// The transforms of Winograd's convolution with 3 x 3 windows, and the parameters of the kernels in winograd.cu. This
// header does not use std.
//
// The algorithm is F(4 x 4, 3 x 3): a tile of 4 x 4 results takes 36 multiplications; the definition takes 144. In
// these formulas, * is the elementwise product:
//   y = A^T ((G w G^T) * (B^T x B)) A     for y and dx: B^T is 6 x 6, G 6 x 3, A^T 4 x 6
//   dw = A^T ((G dy G^T) * (B^T x B)) A   for dw: B^T is 6 x 6, G 6 x 4, A^T 3 x 6
// The matrices interpolate at the points 0, 1, -1, 1/2, -2 and infinity. For normal data, the error is 1.1e-6 (64
// channels) to 2.1e-6 (256 channels) of the results' root mean square. A float32 sum without transforms has an error of
// 4.3e-7 to 8.6e-7. (Both were simulated, 2026-11-21.) With the points 0, 1, -1, 2, -2 and infinity, the error of the
// algorithm is 1.5 times as large. The elements of B are exact in float32.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/core/host_device/hd.h"

namespace minidnn {

constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPoints = 36;

// The matrix B^T, which transforms six inputs along one dimension.
struct WinogradPatch {
  static constexpr int kIn = 6, kOut = 6;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, -1.5f, -2, 1.5f, 1, 0}, {0, -1, 0.5f, 2.5f, 1, 0},  {0, 1, -2.5f, 0.5f, 1, 0},
                                    {0, -2, -1, 2, 1, 0},       {0, 0.5f, -1, -0.5f, 1, 0}, {0, 1, -1.5f, -2, 1.5f, 1}};
    return m[i][j];
  }
};
// The matrix G, which transforms three elements of w (a row or a column of the window) along one dimension.
struct WinogradWindow {
  static constexpr int kIn = 3, kOut = 6;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, 0, 0},
                                    {1 / 3.0f, 1 / 3.0f, 1 / 3.0f},
                                    {-1 / 3.0f, 1 / 3.0f, -1 / 3.0f},
                                    {-16 / 15.0f, -8 / 15.0f, -4 / 15.0f},
                                    {1 / 15.0f, -2 / 15.0f, 4 / 15.0f},
                                    {0, 0, 1}};
    return m[i][j];
  }
};
// The matrix A^T, which computes four results along one dimension.
struct WinogradResult {
  static constexpr int kIn = 6, kOut = 4;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {
        {1, 1, 1, 1, 1, 0}, {0, 1, -1, 0.5f, -2, 0}, {0, 1, 1, 0.25f, 4, 0}, {0, 1, -1, 0.125f, -8, 1}};
    return m[i][j];
  }
};
// The matrix G, which transforms four elements of dy along one dimension.
struct WinogradGradient {
  static constexpr int kIn = 4, kOut = 6;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, 0, 0, 0},
                                    {1 / 3.0f, 1 / 3.0f, 1 / 3.0f, 1 / 3.0f},
                                    {-1 / 3.0f, 1 / 3.0f, -1 / 3.0f, 1 / 3.0f},
                                    {-16 / 15.0f, -8 / 15.0f, -4 / 15.0f, -2 / 15.0f},
                                    {1 / 15.0f, -2 / 15.0f, 4 / 15.0f, -8 / 15.0f},
                                    {0, 0, 0, 1}};
    return m[i][j];
  }
};
// The matrix A^T, which computes three elements of dw along one dimension.
struct WinogradTaps {
  static constexpr int kIn = 6, kOut = 3;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 0.5f, -2, 0}, {0, 1, 1, 0.25f, 4, 1}};
    return m[i][j];
  }
};

// The strides (in elements) and the image size of a tensor of any layout.
struct WinogradTensor {
  int64_t image = 0, channel = 0, row = 0, column = 0;
  int32_t height = 1, width = 1;
};

// The tiles of a batch of images, and the buffer of their transforms, [36][tile][channel] or [36][channel][tile]. The
// number of tiles is padded to a multiple of four with zeros.
struct WinogradGrid {
  uint32_t tiles = 0, padded_tiles = 0, channels = 0;
  // the tiles in a row of an image, and the rows of tiles in an image
  FastDivmod across{}, down{};
  // the size of the buffer's contiguous dimension
  FastDivmod fast{};
  uint32_t channels_fast = 0;
  int64_t plane = 0, channel = 0, tile = 0;  // the strides of the buffer, in elements

  MINIDNN_HD uint32_t size() const { return padded_tiles * channels; }
};

// The parameters of the kernel winograd_output.
struct WinogradOutput {
  WinogradTensor y, residual;
  WinogradGrid grid;
  int64_t bias_stride = 0;
  int32_t vectors = 0;  // 1 if four adjacent elements of a row of y can be stored as a vector
  float alpha = 0;
};

struct WinogradTilePosition {
  uint32_t tile, channel;
  int32_t image, row, column;  // the coordinates of the first element of the tile
};
MINIDNN_HD WinogradTilePosition position_of(const WinogradGrid& g, uint32_t i) {
  WinogradTilePosition p;
  const uint32_t first = uint32_t(g.fast.divmod(i));
  p.channel = g.channels_fast ? first : i;
  p.tile = g.channels_fast ? i : first;
  uint32_t image = p.tile;
  p.column = g.across.divmod(image) * kWinogradTile;
  p.row = g.down.divmod(image) * kWinogradTile;
  p.image = int32_t(image);
  return p;
}

// The windows [sum, result, 3, 3], with any strides, and their transforms, [36][sum][result]. The matrix products sum
// over `sum`; for dw, it is the filter.
struct WinogradFilter {
  FastDivmod results{};
  uint32_t sums = 0;
  int64_t origin = 0, sum = 0, result = 0, row = 0, column = 0;
  int64_t plane = 0, pitch = 0;  // the strides of the transforms, in elements
};

}  // namespace minidnn
