// SPDX-License-Identifier: Apache-2.0
// How cuda.layer_norm.two_pass divides long rows among blocks, for host code and kernels.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// kTwoPassRows is the number of rows that a thread loads together.
constexpr int kTwoPassThreads = 256, kTwoPassRows = 4;
// the maximum number of rows in a section (neighbouring rows that one block computes)
constexpr int kMaxSectionRows = 128;

struct TwoPassTiling {
  int64_t rows = 0, columns = 0;
  uint32_t vectors = 0;  // the number of vectors in a row
  // The first launch divides each row into `chunks` chunks of `chunk` vectors. A block has one chunk of kTwoPassRows
  // adjacent rows.
  uint32_t chunk = 0, chunks = 0;
  // The second launch, which computes dx, divides each row into `tiles` tiles of kTwoPassThreads vectors, and the rows
  // into `sections` sections of `section` rows. A block has one tile of one section.
  uint32_t tiles = 0, section = 0, sections = 0;
  int64_t centered = 1;
};

}  // namespace minidnn
