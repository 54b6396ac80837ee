// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.winograd divides its work. A tile is 4 x 4 results, computed from a patch of 6 x 6 inputs. A panel is a
// group of filters. A block is some rows of tiles. The file also defines the layout of the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/winograd/winograd_kernel.h"

namespace minidnn {
namespace cpu::conv {

struct WinogradTiling {
  ConvProblem p;
  ConvGeometry g;
  const WinogradKernels& kernels = winograd_kernels();
  // `in` is read (x or dy), and `out` is written.
  ConvTensorView in, out;
  // The number of pixels by which a patch of inputs begins before its tile of results.
  int64_t before[2];
  int64_t threads, channels, filters;
  // The padded number of floats of the channels of a pixel, and the number of panels of filters.
  int64_t pitch, panels;

  // The rows and columns of tiles in an image, and the rows of tiles in all images.
  int64_t tile_rows, tile_columns, tile_lines;
  // True if there are few tiles, and enough filters for all threads. All patches are then transformed once and shared,
  // and each thread transforms weights just before it uses them.
  bool shares_patches;
  // How tiles and filters are divided into work items: parts of a row of tiles, tiles per part, groups of rows of
  // tiles, and groups of panels of filters.
  int64_t line_chunks, chunk_tiles, blocks, panel_chunks;

  // Distances in floats between the 36 planes of transformed weights, of transformed patches, and of products.
  int64_t window_plane, patch_plane, product_plane;
  // Offsets in the scratch memory of a thread, in floats.
  int64_t products_at = 0, ring_at = 0, pixels_at = 0, transposed_at = 0, rows_at = 0;
  // The workspace begins with shared transformed data. The scratch memory of the threads begins at `scratch_at`.
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;

  WinogradTiling(const ConvProblem&, const Device&);
  // Returns the number of floats of the input row that one part of a row of tiles reads.
  int64_t ring_line() const { return (kWinogradTile * chunk_tiles + 2) * pitch; }
  // Returns the smallest number of products in the sum of a result. Results at the border have fewer, because of
  // padding.
  int64_t least_products() const;

 private:
  void divide_tiles();
  void lay_out_workspace();
};

}  // namespace cpu::conv
}  // namespace minidnn
