// SPDX-License-Identifier: Apache-2.0
// The tiling of cpu.conv.winograd: tiles of the result, blocks of tiles, panels of filters, and the layout of the
// workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/winograd/winograd_kernel.h"

namespace minidnn {
namespace cpu::conv {

struct WinogradTiling {
  ConvProblem p;
  ConvGeometry g;
  const WinogradKernels& kernels = winograd_kernels();
  ConvTensorView in, out;  // the tensor that patches are read from, and the result
  int64_t before[2];       // number of pixels by which a patch begins before its tile, along each dimension
  int64_t threads, channels, filters;
  int64_t pitch, panels;  // floats of a pixel's channels with padding; number of panels of filters

  // The tiles of an image along each dimension. A tile line is one line of tiles; tile_lines counts those of all
  // images.
  int64_t tile_rows, tile_columns, tile_lines;
  // True for few tiles: the patches of all tiles are then transformed once and shared by the threads, and each thread
  // transforms the windows of a panel just before it uses them. Storing and reloading transformed windows would cost as
  // much as their products.
  bool shares_patches;
  // Tile lines are divided into chunks of chunk_tiles tiles, and into blocks of neighbouring tile lines. Panels are
  // divided into panel_chunks chunks. A work item is a chunk of the tile lines of a block, for a chunk of the panels.
  int64_t line_chunks, chunk_tiles, blocks, panel_chunks;

  // Distance between the planes of two points, in floats: of the transformed windows of a panel, and of a block's
  // transformed patches and products.
  int64_t window_plane, patch_plane, product_plane;
  // Offsets in the scratch of a thread, in floats. Offset 0 has the transformed windows or patches of the thread.
  int64_t products_at = 0, ring_at = 0, pixels_at = 0, transposed_at = 0, rows_at = 0;
  // The workspace begins with the transformed patches or windows that all threads share.
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;

  WinogradTiling(const ConvProblem&, const Device&);
  // Floats of one line of input pixels that the patches of a chunk read.
  int64_t ring_line() const { return (kWinogradTile * chunk_tiles + 2) * pitch; }
  // The smallest number of products in the sum of any result.
  int64_t least_products() const;

 private:
  void divide_tiles();
  void lay_out_workspace();
};

}  // namespace cpu::conv
}  // namespace minidnn
