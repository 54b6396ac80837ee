// SPDX-License-Identifier: Apache-2.0
// Tests how cpu.conv.winograd divides layers of ResNet-50. The work items must cover the result, each thread must have
// work, and the arrays in the workspace must not overlap.
#include "cpp/conv/cpu/winograd/winograd_tiling.h"

#include "tests/cpp/conv_problem.h"

using namespace minidnn;
using cpu::conv::WinogradTiling;

static void check(const ConvProblem& p, bool shares_patches) {
  constexpr int kThreads = 8;
  const WinogradTiling t(p, cpu_with_threads(kThreads));
  expect(t.shares_patches == shares_patches, p, "wrong choice of what the threads share");
  expect(t.tile_rows * kWinogradTile >= t.out.size[1] && (t.tile_rows - 1) * kWinogradTile < t.out.size[1], p,
         "the tiles do not cover the lines of the result");
  expect(t.line_chunks * t.chunk_tiles >= t.tile_columns && (t.line_chunks - 1) * t.chunk_tiles < t.tile_columns, p,
         "the chunks do not cover a tile line, or one is empty");
  expect(t.blocks > 0 && t.blocks <= t.tile_lines, p, "a block has no tile line");
  expect(t.panels * t.kernels.columns >= t.filters, p, "the panels do not cover the filters");
  expect(t.panel_chunks > 0 && t.panel_chunks <= t.panels, p, "a chunk of panels is empty");
  const int64_t items = shares_patches ? t.panels : t.blocks * t.line_chunks * t.panel_chunks;
  expect(items >= std::min<int64_t>(kThreads, t.tile_lines * t.line_chunks * t.panels), p, "a thread has no work");

  const int64_t tiles = (t.tile_lines + t.blocks - 1) / t.blocks * t.chunk_tiles;
  expect(t.patch_plane >= tiles * t.pitch && t.product_plane >= tiles * t.kernels.columns, p,
         "the planes of two points overlap");
  const int64_t own = shares_patches ? t.window_plane : t.patch_plane;
  expect(own * kWinogradPlanes <= t.products_at && t.products_at < t.ring_at && t.ring_at < t.pixels_at &&
             t.pixels_at < t.transposed_at && t.transposed_at < t.rows_at,
         p, "wrong layout of the scratch of a thread");
  const int64_t shared = shares_patches ? t.patch_plane : t.panels * t.window_plane;
  expect(size_t(shared * kWinogradPlanes) * sizeof(float) <= t.scratch_at, p, "shared planes overlap the scratch");
  expect(t.bytes == t.scratch_at + t.scratch_bytes * kThreads, p, "the scratch of 8 threads is not in the workspace");
}

static void check_least_products(const ConvProblem& p, int64_t want) {
  expect(WinogradTiling(p, cpu_with_threads(1)).least_products() == want, p, "wrong least number of products");
}

int main() {
  using enum ConvDirection;
  check(square_conv(forward, 32, 64, 56, 64, 3, 1), false);
  check(square_conv(forward, 1, 512, 7, 512, 3, 1), true);
  check(square_conv(forward, 1, 64, 1000, 64, 3, 1), false);  // a row of tiles is divided into several chunks
  // the tiles exceed the image, and the filters do not fill the last panel (group of filters)
  check(square_conv(forward, 1, 40, 13, 40, 3, 1), false);
  check(square_conv(backward_data, 32, 128, 28, 256, 3, 1), false);
  check(square_conv(backward_data, 1, 512, 7, 512, 3, 1), true);
  // The result at a corner of the image is the sum of the fewest products: its window has 2 x 2 elements inside the
  // image.
  check_least_products(square_conv(forward, 1, 64, 56, 64, 3, 1), 64 * 2 * 2);
  check_least_products(square_conv(forward, 1, 64, 1, 64, 3, 1), 64);  // each image has a single pixel
  check_least_products(square_conv(backward_data, 1, 64, 56, 32, 3, 1), 32 * 2 * 2);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
