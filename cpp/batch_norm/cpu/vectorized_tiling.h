// SPDX-License-Identifier: Apache-2.0
// How cpu.batch_norm.vectorized divides a call among threads. A tile is a group of adjacent channels, such as 64. Its
// elements are divided into sections, which are summed separately.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/simd/channel_norm.h"

namespace minidnn {
namespace cpu::batch_norm {

// The tensors of a call as arrays [rows][columns][space], as cpp/simd/channel_norm.h expects. Elements along `space`
// are contiguous and belong to one channel. If `space` is 1, each channel has `repeat` adjacent columns, and `copies`
// short rows may be merged into one.
struct Tiling {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  // Short rows are merged, `copies` rows into one. This is the number of rows left over.
  int64_t remaining_rows = 0;
  NormBlock::Steps x{}, dy{}, out{};
  // The strides of y and of the gradient of the residual, for the backward function with fused options.
  NormBlock::Steps y{}, gated{};
  bool ordered = false;  // true if parameters have the same order in memory as the channels
  // The number of channels per tile, and the number of tiles.
  int64_t tile = 0, tiles = 0;
  // A tile is summed in `sections` parts of `section` rows. If `chunks` > 1, a part is `section` elements of one row.
  int64_t section = 0, sections = 0;
  int64_t chunks = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// Returns the tensors of a call as arrays [rows][columns][space], or nothing if their strides do not allow it.
std::optional<Tiling> loops_of(const BatchNormProblem&);
// Returns how a call is divided among threads. loops_of() must return a result for this call.
Tiling tiling_of(const BatchNormProblem&, const Device&);

}  // namespace cpu::batch_norm
}  // namespace minidnn
