// SPDX-License-Identifier: Apache-2.0
// How cuda.layer_norm.persistent_rows divides rows among blocks and threads, for host and kernels.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMaxRowThreads = 512;  // threads of a persistent block, at most
// Backward. Up to kScaleInRegisters elements per thread, registers hold scale as well as the sums. Up to
// kTwoBlocksPerSm elements per thread, the registers of an SM suffice for two blocks.
constexpr int kScaleInRegisters = 16, kTwoBlocksPerSm = 8;
constexpr int kFewSumsThreads = 256;  // threads of a block that joins few partial sums
// Forward, persistent blocks: elements of a row that a thread has, and whose parameters it keeps in registers, at most.
constexpr int kForwardElements = 32;
// Forward, persistent blocks: rows per iteration. 16-bit types have two, which share one synchronisation.
MINIDNN_HD constexpr int rows_per_iteration(int64_t vector) { return vector == 4 ? 1 : 2; }

struct RowTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;       // vectors of a row
  uint32_t threads = 0;       // of a block, per row: whole warps; 8 or 16 lanes for forward rows in registers
  uint32_t rows_at_once = 0;  // rows that a block processes together
  uint32_t blocks = 1;        // per row: a cluster
  uint32_t stages = 1;        // persistent blocks: iterations whose rows shared memory holds, 4 at most
  int64_t centered = 1;
  // Group norm: row r has the channels of group r % groups. A group has `of_group` channels; a channel has `span`
  // vectors and one parameter. groups = 0: each element of a row has a parameter.
  uint32_t groups = 0, of_group = 0;
  FastDivmod span;
  float per_column = 0;  // 1 / columns
};

}  // namespace minidnn
