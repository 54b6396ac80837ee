// SPDX-License-Identifier: Apache-2.0
// How cuda.layer_norm.persistent_rows divides rows among blocks and threads, for host code and kernels.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kMaxRowThreads = 512;  // the maximum number of threads in a persistent block
// The maximum number of elements per thread in the backward kernel with which scale and the sums of dscale and dbias
// fit in registers, and with which two blocks fit on an SM.
constexpr int kScaleInRegisters = 16, kTwoBlocksPerSm = 8;
constexpr int kFewSumsThreads = 256;  // the number of threads in a block of layer_norm_few_parameter_sums
// The maximum number of elements of a row per thread in the persistent forward kernel, which keeps scale and bias of
// these elements in registers.
constexpr int kForwardElements = 32;
// The number of rows per iteration of the persistent forward kernel. It is two for 16-bit types, so that threads
// synchronise once for two rows. `vector` is the number of elements in 16 bytes.
MINIDNN_HD constexpr int rows_per_iteration(int64_t vector) { return vector == 4 ? 1 : 2; }

struct RowTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;  // the number of vectors in a row
  // The number of threads of one block that share a row: a multiple of 32 or, for short rows in forward, 8 or 16.
  uint32_t threads = 0;
  uint32_t rows_at_once = 0;  // the number of rows that a block processes at the same time
  uint32_t blocks = 1;        // the number of blocks (a cluster) that share a row
  // for persistent blocks: the number of iterations whose rows are in shared memory, at most 4
  uint32_t stages = 1;
  int64_t centered = 1;
  // For group norm: row r has the `of_group` channels of group r % groups. `span` divides by the number of vectors in a
  // channel. In layer and RMS norm, `groups` is 0.
  uint32_t groups = 0, of_group = 0;
  FastDivmod span;
  float per_column = 0;
};

}  // namespace minidnn
