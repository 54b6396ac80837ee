// SPDX-License-Identifier: Apache-2.0
// Rows as cuda.norm.rows cuts them, for host and kernels.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kNormRowsThreads = 512;  // of a block that stays, at most
// Elements of a thread that leave registers for scale beside their sums, and for a second block on an SM.
constexpr int kNormRowsKept = 16, kNormRowsShared = 8;
constexpr int kNormFewThreads = 256;   // of a block that joins few partial sums
constexpr int kNormRowsStreamed = 32;  // forward: elements of a row whose parameters a thread keeps, at most
// Forward: rows of a thread at each turn of blocks that stay, so that those of 16 bits meet together.
MINIDNN_HD constexpr int norm_rows_a_turn(int64_t vector) { return vector == 4 ? 1 : 2; }

struct NormRows {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;       // of a row
  uint32_t threads = 0;       // of a block, at a row: whole warps, or of forward rows held in registers 8 or 16 lanes
  uint32_t rows_at_once = 0;  // of a block
  uint32_t blocks = 1;        // at a row: a cluster
  uint32_t stages = 1;        // of blocks that stay: turns on their way, 4 at most
  int64_t centered = 1;
  // Group norm: row r has the channels of group r % groups, `of_group` of them, a parameter for `span` vectors each.
  // 0: a parameter for each element of a row.
  uint32_t groups = 0, of_group = 0;
  FastDivmod span;
  float per_column = 0;  // 1 / columns
};

}  // namespace minidnn
