// SPDX-License-Identifier: Apache-2.0
// Long rows as cuda.norm.long_rows cuts them, for host and kernels.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

constexpr int kLongThreads = 256, kLongBatch = 4;  // rows in flight, of x and dy, a thread
constexpr int kMostLongSection = 128;

struct NormLongRows {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;            // of a row
  uint32_t chunk = 0, chunks = 0;  // sums: vectors of each row that a block takes, blocks of a batch of rows
  uint32_t tiles = 0, section = 0, sections = 0;  // map: blocks of kLongThreads vectors in a row; rows of a block
  int64_t centered = 1;
};

}  // namespace minidnn
