// SPDX-License-Identifier: Apache-2.0
// Compares the transforms of cuda.conv.winograd with the definition of convolution. All numbers are double, so that
// rounding errors are negligible.
#include <cmath>
#include <iostream>

#include "cuda/conv/winograd/winograd_math.h"

using namespace minidnn;

// Computes A^T ((G g) * (B^T d)) in one dimension for all unit vectors g (window) and d (patch of x), with the
// transform matrices A, B and G. The results are compared with the definition of convolution.
template <class Results, class Window>
static int check(const char* what) {
  int wrong = 0;
  for (int element = 0; element < WinogradPatch::kIn; ++element)
    for (int tap = 0; tap < Window::kIn; ++tap)
      for (int i = 0; i < Results::kOut; ++i) {
        double y = 0;
        for (int point = 0; point < 6; ++point)
          y += double(Results::at(i, point)) * double(Window::at(point, tap)) *
               double(WinogradPatch::at(point, element));
        const double want = i + tap == element;
        if (std::abs(y - want) > 1e-6) {
          std::cout << what << ": element " << element << " by tap " << tap << " gives result " << i << " of " << y
                    << std::endl;
          ++wrong;
        }
      }
  return wrong;
}

// Checks that each pair of a tile and a channel has its own index.
static int check_places(bool channels_fast) {
  WinogradGrid g;
  g.across = FastDivmod(3);
  g.down = FastDivmod(2);
  g.tiles = 5 * 6;
  g.padded_tiles = 32;
  g.channels = 7;
  g.channels_fast = channels_fast;
  g.fast = FastDivmod(channels_fast ? 7 : 32);
  int wrong = 0;
  for (uint32_t i = 0; i < g.size(); ++i) {
    const WinogradTilePosition p = position_of(g, i);
    const uint32_t again = channels_fast ? p.tile * 7 + p.channel : p.channel * 32 + p.tile;
    const uint32_t tile = uint32_t(p.image) * 6 + uint32_t(p.row) / 4 * 3 + uint32_t(p.column) / 4;
    wrong += again != i || tile != p.tile || p.row % 4 || p.column % 4 || p.row > 4 || p.column > 8;
  }
  if (wrong) std::cout << wrong << " wrong places" << std::endl;
  return wrong;
}

int main() {
  int wrong = check<WinogradResult, WinogradWindow>("forward") + check<WinogradTaps, WinogradGradient>("filter");
  wrong += check_places(false) + check_places(true);
  std::cout << (wrong ? "FAILED" : "ok") << std::endl;
  return wrong != 0;
}
