// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/winograd/winograd_tiling.h"

#include <algorithm>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The limit in bytes for transformed input patches, which fit a second-level cache.
constexpr int64_t kPatchBytes = 640 << 10;
// The smallest and the largest number of tiles in a block.
constexpr int64_t kLeastTiles = 24, kMostTiles = 96;
// The largest number of tiles for which all threads share the transformed input patches.
constexpr int64_t kFewTiles = 128;

int64_t rounded_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

}  // namespace

WinogradTiling::WinogradTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      g(conv_geometry(problem)),
      in(g.backward_data ? g.y : g.x),
      out(conv_out(g)),
      threads(d.sm_count),
      channels(in.channels),
      filters(out.channels),
      pitch(rounded_up(channels, 16)),
      panels(ceil_div(filters, kernels.columns)),
      tile_rows(ceil_div<int64_t>(out.size[1], kWinogradTile)),
      tile_columns(ceil_div<int64_t>(out.size[2], kWinogradTile)),
      tile_lines(g.images * tile_rows),
      shares_patches(tile_lines * tile_columns <= cpu::work_size(kFewTiles) && panels >= threads) {
  for (int j = 0; j < 2; ++j) before[j] = g.backward_data ? 2 - g.pad[1 + j] : g.pad[1 + j];
  divide_tiles();
  lay_out_workspace();
}

int64_t WinogradTiling::least_products() const {
  int64_t products = channels;
  for (int j = 0; j < 2; ++j) {
    // The first or the last window has the fewest elements on data in this dimension.
    const int64_t size = in.size[1 + j];
    int64_t least = 3;
    for (int64_t at : {int64_t(0), out.size[1 + j] - 1})
      least = std::min(least, std::min(size, at + 3 - before[j]) - std::max<int64_t>(0, at - before[j]));
    products *= std::max<int64_t>(least, 0);
  }
  return products;
}

void WinogradTiling::divide_tiles() {
  const int64_t fit = kPatchBytes / (kWinogradPlanes * pitch * int64_t(sizeof(float)));
  const int64_t most =
      shares_patches ? kFewTiles : std::clamp(fit, cpu::work_size(kLeastTiles), cpu::work_size(kMostTiles));
  chunk_tiles = ceil_div(tile_columns, ceil_div(tile_columns, most));
  line_chunks = ceil_div(tile_columns, chunk_tiles);
  blocks = ceil_div(tile_lines, std::max<int64_t>(1, most / chunk_tiles));
  if (!shares_patches) blocks = std::max(blocks, std::min(tile_lines, ceil_div(threads, line_chunks * panels)));
  if (blocks * line_chunks > threads) blocks = std::min(tile_lines, rounded_up(blocks, threads));
  panel_chunks = std::min(panels, ceil_div(threads, blocks * line_chunks));
}

void WinogradTiling::lay_out_workspace() {
  const int64_t tiles = ceil_div(tile_lines, blocks) * chunk_tiles;
  const int64_t pixels = kWinogradTile * kWinogradTile * chunk_tiles;
  // With one extra vector, the distance between planes is not a multiple of the page size, for which they would share
  // few cache sets.
  window_plane = (shares_patches ? std::min(channels, kWinogradChannels) : channels) * kernels.columns + 16;
  patch_plane = tiles * pitch + 16;
  product_plane = tiles * kernels.columns + 16;
  int64_t floats = 0;
  auto reserve = [&](int64_t size) {
    const int64_t at = floats;
    floats += rounded_up(size, 16);
    return at;
  };
  const int64_t windows = kWinogradPlanes * window_plane, patches = kWinogradPlanes * patch_plane;
  reserve(shares_patches ? windows : patches);
  products_at = reserve(kWinogradPlanes * product_plane);
  ring_at = reserve(kWinogradPatch * ring_line());
  pixels_at = reserve((pixels + kWinogradTile) * kernels.columns);
  transposed_at = reserve(pixels * kernels.columns);
  rows_at = reserve(4 * std::max(pixels, kernels.columns));
  const int64_t shared = shares_patches ? patches : panels * windows;
  scratch_at = size_t(rounded_up(shared * int64_t(sizeof(float)), 4096));
  scratch_bytes = size_t(rounded_up(floats * int64_t(sizeof(float)), 4096));
  bytes = scratch_at + scratch_bytes * size_t(threads);
}

}  // namespace cpu::conv
}  // namespace minidnn
