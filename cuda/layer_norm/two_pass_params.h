// SPDX-License-Identifier: Apache-2.0
// How cuda.layer_norm.two_pass divides long rows, for host and kernels.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

constexpr int kTwoPassThreads = 256, kTwoPassRows = 4;  // kTwoPassRows: rows of x and dy in flight, per thread
constexpr int kMaxSectionRows = 128;                    // rows

struct TwoPassTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;            // of a row
  uint32_t chunk = 0, chunks = 0;  // sums: vectors of each row that a block adds up; blocks of a batch of rows
  // Map: tiles of kTwoPassThreads vectors in a row; rows of a section; sections. A block has a tile and a section.
  uint32_t tiles = 0, section = 0, sections = 0;
  int64_t centered = 1;
};

}  // namespace minidnn
