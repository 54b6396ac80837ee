// SPDX-License-Identifier: Apache-2.0
// How cpu.batch_norm.vectorized divides a call among threads. A tile is a group of adjacent channels, and a section is
// some elements of each channel of a tile.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/simd/channel_norm.h"

namespace minidnn {
namespace cpu::batch_norm {

// The tensors of a call as arrays [rows][columns][space], which the loops of cpp/simd/channel_norm.h expect. Elements
// along `space` are contiguous and belong to the same channel. If `space` is 1, each channel has `repeat` adjacent
// columns, and if rows are too short to fill vectors, `copies` rows are merged into one.
struct Tiling {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  // The number of rows at the end that are not merged. Short rows are merged, `copies` rows into one, and these are
  // fewer than `copies`.
  int64_t remaining_rows = 0;
  NormBlock::Steps x{}, dy{}, out{};
  // The strides of y and of the gradient of the residual. Only the backward function with fused options uses them.
  NormBlock::Steps y{}, gated{};
  bool ordered = false;  // whether parameters have the same order in memory as the channels
  // A tile is a group of adjacent channels. `tile` is the number of its channels, and `tiles` is the number of tiles.
  int64_t tile = 0, tiles = 0;
  // `sections` is the number of parts that are summed separately in a tile (some neighbouring channels). If `chunks` is
  // 1, such a part has `section` rows. If `chunks` is larger, each row of a channel (`space` elements) is divided into
  // `chunks` parts of `section` elements.
  int64_t section = 0, sections = 0;
  int64_t chunks = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// Returns the tensors of a call as arrays [rows][columns][space], not yet divided among threads. Returns nothing if the
// distance between rows or between channels is not constant, or if neither the elements of a channel nor the channels
// are contiguous.
std::optional<Tiling> loops_of(const BatchNormProblem&);
// Returns how the tensors of a call are divided among threads. loops_of() must return a result for this call.
Tiling tiling_of(const BatchNormProblem&, const Device&);

}  // namespace cpu::batch_norm
}  // namespace minidnn
