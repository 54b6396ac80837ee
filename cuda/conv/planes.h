// SPDX-License-Identifier: Apache-2.0
// How planes.cu cuts its work into blocks of threads. Std-free: a kernel parameter.
#pragma once
#include "cuda/conv/stencil.h"

namespace minidnn {

template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 ? 4 : 2;  // by 4 columns
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };          // four of out that are stored at once

// Threads of a unit, kFilters filters of one group: `quads` of four columns along a row, `strips` of rows down. For dw
// a unit is one filter, with `jobs` rows of its window, and `walkers` threads share the quads and rows of the tile.
struct PlaneBlock {
  Divisor quads, strips, jobs, walkers;
  Divisor units_of_group;
  int32_t units = 1;   // of a bundle: of a block
  int32_t groups = 1;  // the most that a bundle's units belong to
  int32_t chunk = 1;   // channels of each group that are in shared memory at a time
  // The tile of in: rows, columns, elements from row to row and of a plane.
  Divisor chunk_digit;
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0;
  int32_t out_pitch = 0, out_plane = 0;  // of dy
  int32_t weights = 0, buffer = 0;       // floats: all of w that a block needs, and one of its two buffers
  Divisor window[3], in_channels;        // of w, to take its indices apart
  int32_t channel_blocks = 1, job_groups = 1;
};

}  // namespace minidnn
