// SPDX-License-Identifier: Apache-2.0
// The division of rows among blocks and threads in cuda.layer_norm.persistent_rows, for host code and kernels.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMaxRowThreads = 512;  // largest number of threads of a persistent block
// Limits of the backward kernel. A thread with at most kScaleInRegisters elements keeps scale as well as its sums in
// registers. If a thread has at most kTwoBlocksPerSm elements, the registers of an SM suffice for two blocks.
constexpr int kScaleInRegisters = 16, kTwoBlocksPerSm = 8;
constexpr int kFewSumsThreads = 256;  // threads of a block of layer_norm_few_parameter_sums
// Forward kernel with persistent blocks: the largest number of elements of a row that a thread has. The thread keeps
// scale and bias of these elements in registers.
constexpr int kForwardElements = 32;
// Forward kernel with persistent blocks: rows per iteration. In 16-bit types there are two, which share one
// synchronisation. vector: elements of a 16-byte vector.
MINIDNN_HD constexpr int rows_per_iteration(int64_t vector) { return vector == 4 ? 1 : 2; }

struct RowTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;  // number of vectors in a row
  // threads: threads of a block that share a row. It is a multiple of 32, or 8 or 16 for forward rows in registers.
  uint32_t threads = 0;
  uint32_t rows_at_once = 0;  // number of rows that a block processes together
  uint32_t blocks = 1;        // number of blocks that share a row; more than one are a cluster
  uint32_t stages = 1;        // persistent blocks: iterations whose rows are in shared memory, 4 at most
  int64_t centered = 1;
  // Group norm: row r has the channels of group r % groups. A group has `of_group` channels. A channel has `span`
  // vectors and one parameter. Layer and RMS norm: groups is 0, and each element of a row has its own parameter.
  uint32_t groups = 0, of_group = 0;
  FastDivmod span;
  float per_column = 0;  // 1 / columns
};

}  // namespace minidnn
