// SPDX-License-Identifier: Apache-2.0
// The tape of a region of rows. A block is one row, or several short ones that fit a span. For each block, these calls
// run: those of rows[0], then for each statistic k those of phases[k] over the spans of the block, statistics[k] over
// the block and those of rows[k + 1], at last those of phases.back() over its spans.
#pragma once
#include "cpp/graph/cpu/tape.h"
#include "cpp/graph/row_region.h"

namespace minidnn::cpu::graph {

// A slot behind the buffers of spans. If it is no `row`, the memory of a span begins at the span's first element.
struct RowSlot {
  enum class Kind {
    tensor,  // the elements of a tensor, read or written in place
    column,  // a tensor with one element for each column, read in place
    block,   // a buffer for the elements of a block, used in several phases or by a statistic
    row,     // a buffer with one number for each row of a block
  };
  Kind kind;
  int64_t bytes;   // of an element
  int value = -1;  // the region's value of a tensor
};

struct RowTape {
  int64_t cols = 0, block_rows = 1;
  std::vector<Call> constants;
  // Calls with the number of the block's first row and the number of its rows as Span::first and Span::n.
  std::vector<Call> rows[kMostStatistics + 1];
  std::vector<Call> phases[kMostStatistics + 1];
  std::vector<Call> statistics;
  int buffers = 0;
  std::vector<RowSlot> slots;  // slot i has the number kMostBuffers + i
  bool non_temporal = false;

  int64_t block() const { return block_rows * cols; }
};

// Fills `to`. Returns "", or why there are too few buffers.
std::string row_tape(const Region&, const RowRegion&, RowTape& to);

}  // namespace minidnn::cpu::graph
