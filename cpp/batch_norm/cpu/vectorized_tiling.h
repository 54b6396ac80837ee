// SPDX-License-Identifier: Apache-2.0
// How cpu.batch_norm.vectorized divides a problem among threads and sections.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/simd/channel_norm.h"

namespace minidnn {
namespace cpu::batch_norm {

// A problem as the loops of cpp/simd/channel_norm.h: [rows][channels][space], or [rows][columns] with `space` 1. In the
// second form, a column belongs to channel column / repeat % channels. Short contiguous spans become columns: a channel
// has `repeat` adjacent ones. `copies` rows are merged into one where a row would end within a vector.
struct Tiling {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  int64_t remaining_rows = 0;  // after the merge of rows: rows at the end that do not fill a merged one
  NormBlock::Steps x{}, dy{}, out{};
  NormBlock::Steps y{}, gated{};      // fused backward: steps of the forward result, and of the residual's gradient
  bool ordered = false;               // the order of parameters in memory is that of the channels
  int64_t tile = 0, tiles = 0;        // tile: channels per tile
  int64_t section = 0, sections = 0;  // section: rows, or with chunks > 1 elements of a row's space
  int64_t chunks = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// Returns the loops, or nothing if neither the members nor the channels are contiguous.
std::optional<Tiling> loops_of(const BatchNormProblem&);
// Returns the loops and their division. The problem must have loops.
Tiling tiling_of(const BatchNormProblem&, const Device&);

}  // namespace cpu::batch_norm
}  // namespace minidnn
