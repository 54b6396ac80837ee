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
  ConvTensorView in, out;  // in: the tensor that patches are read from (x or dy). out: the result.
  int64_t before[2];       // In each dimension, a patch of inputs begins this many pixels before its tile of results.
  int64_t threads, channels, filters;
  // pitch: floats of a pixel's channels, with padding. panels: number of panels (groups of filters).
  int64_t pitch, panels;

  // Numbers of tiles of an image: tile_rows high and tile_columns wide. tile_lines is the number of rows of tiles of
  // all images.
  int64_t tile_rows, tile_columns, tile_lines;
  // True for few tiles. All input patches are then transformed once and shared by the threads, and each thread
  // transforms the weights of a panel of filters just before it uses them. For few tiles, storing and loading
  // transformed weights would take as long as their products.
  bool shares_patches;
  // Lines of tiles are divided into chunks of chunk_tiles tiles. Neighbouring lines of tiles form blocks. Panels of
  // filters are divided into panel_chunks chunks. A work item is one chunk of the lines of a block, for one chunk of
  // the panels.
  int64_t line_chunks, chunk_tiles, blocks, panel_chunks;

  // Distance between the planes (matrices) of two of the 36 points, in floats. window_plane: transformed weights of a
  // panel. patch_plane, product_plane: transformed patches and products of a block.
  int64_t window_plane, patch_plane, product_plane;
  // Offsets in the scratch memory of a thread, in floats. Offset 0 has the weights or patches that the thread has
  // transformed for itself.
  int64_t products_at = 0, ring_at = 0, pixels_at = 0, transposed_at = 0, rows_at = 0;
  // The workspace begins with the transformed patches or weights that all threads share. The scratch memory of the
  // threads follows at scratch_at.
  size_t scratch_at = 0, scratch_bytes = 0, bytes = 0;

  WinogradTiling(const ConvProblem&, const Device&);
  // floats of one line of input pixels that the patches of a chunk (some tiles of a line) read
  int64_t ring_line() const { return (kWinogradTile * chunk_tiles + 2) * pitch; }
  // Returns the number of products in the sum of a result, for the result that has the fewest.
  int64_t least_products() const;

 private:
  void divide_tiles();
  void lay_out_workspace();
};

}  // namespace cpu::conv
}  // namespace minidnn
