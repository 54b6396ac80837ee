// SPDX-License-Identifier: Apache-2.0
// How cpu.batch_norm.vectorized divides the tensors of a call into tiles and sections, and these among threads.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/simd/channel_norm.h"

namespace minidnn {
namespace cpu::batch_norm {

// The tensors of a call as the loops of cpp/simd/channel_norm.h: [rows][channels][space], or [rows][columns] with
// `space` 1. In the second form, each channel has `repeat` adjacent columns in a row. If a row does not fill vectors,
// `copies` rows are merged into one.
struct Tiling {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  int64_t remaining_rows = 0;  // rows at the end that do not fill a merged row
  NormBlock::Steps x{}, dy{}, out{};
  // Steps of y and of the residual's gradient, for the gradient with fused options.
  NormBlock::Steps y{}, gated{};
  bool ordered = false;         // whether parameters have the same order in memory as the channels
  int64_t tile = 0, tiles = 0;  // channels per tile; number of tiles
  // Size and number of sections. The size is in rows, or in elements of a row's `space` if chunks > 1.
  int64_t section = 0, sections = 0;
  int64_t chunks = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// Returns the loops over the tensors. Returns nothing if the steps are uneven, or if neither the elements of a channel
// nor the channels are contiguous.
std::optional<Tiling> loops_of(const BatchNormProblem&);
// Returns the loops, divided into tiles and sections. loops_of() must return loops for this call.
Tiling tiling_of(const BatchNormProblem&, const Device&);

}  // namespace cpu::batch_norm
}  // namespace minidnn
