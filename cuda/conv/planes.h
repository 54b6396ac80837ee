// SPDX-License-Identifier: Apache-2.0
// How planes.cu cuts its work into blocks of threads. Std-free: a kernel parameter.
#pragma once
#include "cuda/conv/stencil.h"

namespace minidnn {

template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 || kFilters == 3 ? 4 : 2;  // by 4 columns
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };  // four of out that are stored, or copied, at once

// How many filters a thread of dw sums at once: with three channels, the image of a first layer, as many as registers
// hold.
MINIDNN_HD constexpr int filters_of_dw(int channels, int columns) { return channels != 3 ? 1 : columns >= 7 ? 4 : 8; }
// Of a block at most. With several filters one block has all registers of an SM: 12 warps, three on each quarter, or
// 14.
MINIDNN_HD constexpr int threads_of_dw(int filters) { return filters == 1 ? 256 : filters == 8 ? 384 : 448; }
// Neighbouring threads whose filters lie one after the other: each reads x where the others do.
constexpr int kFilterLanes = 4;

// Threads of a unit, kFilters filters of one group: `quads` of four columns along a row, `strips` of rows down. For dw
// a unit has `jobs` rows of the window, and `walkers` threads share the quads and rows of the tile, its `positions`;
// `lanes` neighbouring units have every lanes-th of their filters each.
struct PlaneBlock {
  FastDivmod quads, strips, jobs, walkers, lanes, positions;
  FastDivmod units_of_group;
  int32_t units = 1;   // of a bundle: of a block
  int32_t groups = 1;  // the most that a bundle's units belong to
  int32_t chunk = 1;   // channels of each group that are in shared memory at a time
  // The tile of in: rows, columns, elements from row to row and of a plane.
  FastDivmod chunk_digit;
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0, half = 0;  // half: of a pitch, where columns go by twos
  int32_t out_pitch = 0, out_plane = 0;                                 // of dy
  int32_t weights = 0, buffer = 0;    // floats: all of w that a block needs, and one of its two buffers
  FastDivmod window[3], in_channels;  // of w, to take its indices apart
  int32_t channel_blocks = 1, job_groups = 1;
};

// How plane_rows.cu cuts its work: warps stand for spans of kQuadsOfSpan times four columns, strips of kRowsOfStrip
// rows, channels and images; the first fastest. A warp has a lane on either side of its span.
constexpr int kRowsOfStrip = 5, kQuadsOfSpan = 30, kThreadsOfStrips = 256;
struct PlaneRows {
  FastDivmod spans, strips, channels;
  int32_t images = 0;
};

}  // namespace minidnn
