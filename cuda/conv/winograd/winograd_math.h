// SPDX-License-Identifier: Apache-2.0
// The transforms of Winograd's convolution with windows of 3 x 3, and the parameters of the kernels in winograd.cu.
// Std-free.
//
// F(4 x 4, 3 x 3): a tile of 4 x 4 results takes 36 products where the definition takes 144,
//   y = A^T ((G w G^T) * (B^T x B)) A     forward and for dx: B^T 6 x 6, G 6 x 3, A^T 4 x 6
//   w = A^T ((G y G^T) * (B^T x B)) A     for dw: G 6 x 4, A^T 3 x 6
// The matrices interpolate at 0, 1, -1, 1/2, -2 and infinity. Of the usual points these have the smallest rounding
// error: for normal data 1.1e-6 (64 channels) to 2.1e-6 (256) of the results' root mean square, where a float32 sum in
// order has 4.3e-7 to 8.6e-7 (simulated, 2026-11-21). With 0, 1, -1, 2, -2 the error is 1.5 times as large. B's
// elements are exact.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/core/hd.h"

namespace minidnn {

constexpr int kWinogradTile = 4, kWinogradPatch = 6, kWinogradPoints = 36;

struct WinogradPatch {  // B^T
  static constexpr int kIn = 6, kOut = 6;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, -1.5f, -2, 1.5f, 1, 0}, {0, -1, 0.5f, 2.5f, 1, 0},  {0, 1, -2.5f, 0.5f, 1, 0},
                                    {0, -2, -1, 2, 1, 0},       {0, 0.5f, -1, -0.5f, 1, 0}, {0, 1, -1.5f, -2, 1.5f, 1}};
    return m[i][j];
  }
};
struct WinogradWindow {  // G of three taps
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
struct WinogradResult {  // A^T of four results
  static constexpr int kIn = 6, kOut = 4;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {
        {1, 1, 1, 1, 1, 0}, {0, 1, -1, 0.5f, -2, 0}, {0, 1, 1, 0.25f, 4, 0}, {0, 1, -1, 0.125f, -8, 1}};
    return m[i][j];
  }
};
struct WinogradGradient {  // G of four elements of dy
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
struct WinogradTaps {  // A^T of three taps of dw
  static constexpr int kIn = 6, kOut = 3;
  MINIDNN_HD static float at(int i, int j) {
    constexpr float m[kOut][kIn] = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 0.5f, -2, 0}, {0, 1, 1, 0.25f, 4, 1}};
    return m[i][j];
  }
};

// A tensor [images, channels, height, width], from the first image of a batch on; strides in elements.
struct WinogradTensor {
  int64_t image = 0, channel = 0, row = 0, column = 0;
  int32_t height = 1, width = 1;
};

// The tiles of a batch of images, all channels, and the buffer [36][channel][tile] or [36][tile][channel] of their
// transforms. The number of tiles is rounded up to a multiple of four; the added tiles are zeros.
struct WinogradGrid {
  uint32_t tiles = 0, padded_tiles = 0, channels = 0;
  FastDivmod across{}, down{};  // tiles in a row, rows of tiles in an image
  FastDivmod fast{};            // channels or padded tiles, whichever is contiguous
  uint32_t channels_fast = 0;
  int64_t plane = 0, channel = 0, tile = 0;  // strides of the buffer

  MINIDNN_HD uint32_t size() const { return padded_tiles * channels; }
};

// What winograd_output writes.
struct WinogradOutput {
  WinogradTensor y, residual;
  WinogradGrid grid;
  int64_t bias_stride = 0;
  int32_t vectors = 0;  // whether four elements of a row of y are 16 aligned bytes
  float alpha = 0;      // parameter of the activation
};

struct WinogradTilePosition {
  uint32_t tile, channel;
  int32_t image, row, column;  // coordinates of the first element of the tile
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

// Windows: [sum, result, 3, 3] in any strides, where `sum` counts what is summed over. Their transforms are
// [36][sum][result].
struct WinogradFilter {
  FastDivmod results{};
  uint32_t sums = 0;
  int64_t origin = 0, sum = 0, result = 0, row = 0, column = 0;
  int64_t plane = 0, pitch = 0;  // strides of the transforms
};

}  // namespace minidnn
