// SPDX-License-Identifier: Apache-2.0
// How cpu.conv.winograd divides its work: tiles of 4 x 4 results, blocks of tiles, panels of filters, and the layout of
// the workspace.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/winograd/winograd_kernel.h"

namespace minidnn {
namespace cpu::conv {

struct WinogradTiling {
  ConvProblem p;
  ConvGeometry g;
  const WinogradKernels& kernels = winograd_kernels();
  // `in` describes the tensor that patches are read from (x or dy). `out` describes the result.
  ConvTensorView in, out;
  // In each dimension, the number of pixels by which a patch of inputs begins before its tile of results.
  int64_t before[2];
  int64_t threads, channels, filters;
  // `pitch` is the number of floats of the channels of a pixel, including padding. `panels` is the number of panels,
  // where a panel is a group of filters.
  int64_t pitch, panels;

  // `tile_rows` and `tile_columns` are the numbers of rows and columns of tiles in an image. `tile_lines` is the number
  // of rows of tiles in all images.
  int64_t tile_rows, tile_columns, tile_lines;
  // True if there are few tiles of results and enough panels of filters for all threads. All input patches are then
  // transformed once, and all threads share them. Each thread transforms the weights of a panel just before it uses
  // them. With few tiles, storing and loading transformed weights would take as long as multiplying them.
  bool shares_patches;
  // How tiles and filters are divided into work items. A row of tiles is divided into `line_chunks` chunks of
  // `chunk_tiles` tiles. Neighbouring rows of tiles form a block. The panels of filters are divided into `panel_chunks`
  // chunks. A work item is a block, one chunk of each of its rows of tiles, and one chunk of the panels.
  int64_t line_chunks, chunk_tiles, blocks, panel_chunks;

  // Transformed data consists of 36 planes (matrices). These are the distances in floats between consecutive planes: of
  // the transformed weights of a panel (`window_plane`), and of the transformed patches and the products of a block of
  // tiles (`patch_plane` and `product_plane`).
  int64_t window_plane, patch_plane, product_plane;
  // Offsets in the scratch memory of a thread, in floats. The scratch memory begins with transformed weights or
  // patches, whichever the threads do not share.
  int64_t products_at = 0, ring_at = 0, pixels_at = 0, transposed_at = 0, rows_at = 0;
  // The workspace begins with the transformed patches or weights that all threads share. The scratch memory of the
  // threads begins at the offset `scratch_at`.
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;

  WinogradTiling(const ConvProblem&, const Device&);
  // Returns the number of floats in the row of input pixels that a chunk reads. A chunk is a group of adjacent tiles of
  // a row of tiles.
  int64_t ring_line() const { return (kWinogradTile * chunk_tiles + 2) * pitch; }
  // Returns the smallest number of products that the sum of any result has. Results at the border have fewer products,
  // because window elements fall on padding.
  int64_t least_products() const;

 private:
  void divide_tiles();
  void lay_out_workspace();
};

}  // namespace cpu::conv
}  // namespace minidnn
