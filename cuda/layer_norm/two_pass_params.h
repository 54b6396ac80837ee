// SPDX-License-Identifier: Apache-2.0
// The division of long rows in cuda.layer_norm.two_pass, for host code and kernels.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

constexpr int kTwoPassThreads = 256, kTwoPassRows = 4;  // kTwoPassRows: rows that a thread loads at the same time
constexpr int kMaxSectionRows = 128;                    // largest number of rows in a section

struct TwoPassTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;  // number of vectors in a row
  // First launch (sums): a block adds up a chunk of some rows. chunk: vectors of a row in a chunk; chunks: chunks of a
  // row.
  uint32_t chunk = 0, chunks = 0;
  // Second launch (map): a block has one tile of one section of rows. tiles: tiles of kTwoPassThreads vectors in a row;
  // section: rows of a section; sections: number of sections.
  uint32_t tiles = 0, section = 0, sections = 0;
  int64_t centered = 1;
};

}  // namespace minidnn
