// SPDX-License-Identifier: Apache-2.0
// How nchw.cu and nchw_3x3.cu divide their work among blocks of threads. Std-free: kernel parameters.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// Rows of out that a thread computes for each of its filters, 4 columns each.
template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 || kFilters == 3 ? 4 : 2;
// How out is stored or, for dw, dy is loaded: element by element, four columns at a time, or several filters at a time.
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };

// The number of filters for which a thread of dw keeps sums. With three channels (the image of a first layer) it is as
// many as registers hold.
MINIDNN_HD constexpr int filters_of_dw(int channels, int columns) { return channels != 3 ? 1 : columns >= 7 ? 4 : 8; }
// The most threads of a block of dw. With several filters, one block uses all registers of an SM: it has 12 warps,
// three on each quarter of the SM, or 14.
MINIDNN_HD constexpr int threads_of_dw(int filters) { return filters == 1 ? 256 : filters == 8 ? 384 : 448; }
// The number of neighbouring threads of dw that take neighbouring filters. They read the same elements of x.
constexpr int kFilterLanes = 4;

// A unit is kFilters filters of one group. A channel tile has the units of one block.
// y and dx: the tile of a unit is `quads` of four columns times `strips` of kRowsOfThread rows, one for each thread.
// dw: the threads of a unit are `jobs` times `position_splits`. A job is a row of the window (with kS = 0: a tap). The
// positions of a tile are quads times rows; the threads of a job take every position_splits-th of them. If a thread of
// dw has several filters, kFilterLanes neighbouring units interleave: each takes every kFilterLanes-th of their filters.
struct NchwBlock {
  FastDivmod quads, strips, jobs, position_splits, positions;
  FastDivmod units_of_group;
  int32_t units = 1;       // units of a channel tile
  int32_t groups = 1;      // the most groups to which the units of a channel tile belong
  int32_t chunk = 1;       // channels of each group that are in shared memory at a time
  FastDivmod chunk_digit;  // divides by `chunk`
  // The tile of in: rows, columns, floats from row to row, floats of a plane. With a hop of 2, each row stores its even
  // columns first and its odd columns `half` floats further.
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0, half = 0;
  int32_t out_pitch = 0, out_plane = 0;  // the tile of dy: floats from row to row, floats of a plane
  int32_t weights = 0, buffer = 0;       // floats: all of w that a block needs; one of the two buffers
  FastDivmod window[3], in_channels;     // sizes that split an index of w into its digits
  int32_t channel_blocks = 1, job_groups = 1;
};

// How nchw_3x3.cu divides its work. The index of a warp has the digits span (fastest), strip, channel, image. A span
// is kQuadsOfSpan quads of four columns, a strip is kRowsOfStrip rows. A warp has one more lane at either end of its
// span.
constexpr int kRowsOfStrip = 5, kQuadsOfSpan = 30, kThreadsOfStrips = 256;
struct Nchw3x3 {
  FastDivmod spans, strips, channels;
  int32_t images = 0;
};

}  // namespace minidnn
