// SPDX-License-Identifier: Apache-2.0
// The structs that describe how nchw.cu, nchw_filter.cu and nchw_3x3.cu divide their work among blocks of threads. They
// are kernel parameters, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// The number of rows of the output that a thread computes for each of its filters, with 4 columns each.
template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 || kFilters == 3 ? 4 : 2;
// The vectors by which a kernel stores its output or, for dw, loads dy: none, four columns of a row, or several filters
// of a pixel.
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };

// The number of filters per thread of nchw_filter.cu. With three channels of x (an image), it is as large as registers
// allow.
MINIDNN_HD constexpr int filters_of_dw(int channels, int columns) { return channels != 3 ? 1 : columns >= 7 ? 4 : 8; }
// The largest number of threads of a block of nchw_filter.cu. Threads with several filters need so many registers that
// only one block fits on an SM.
MINIDNN_HD constexpr int threads_of_dw(int filters) { return filters == 1 ? 256 : filters == 8 ? 384 : 448; }
// In nchw_filter.cu, groups of kFilterLanes threads read the same elements of x, for different filters.
constexpr int kFilterLanes = 4;

// How nchw.cu and nchw_filter.cu divide the work of a block. A unit is kFilters filters of one group, for example 8 of
// 64. A quad is four columns. y and dx: a tile is `quads` quads wide and `strips` strips (of kRowsOfThread rows) high.
// A thread computes one quad of one strip for one unit. dw: a job is a row of the window or, if kS = 0, one element of
// the window. A position is a quad of a row of the tile. A thread sums one job of one unit over every
// position_splits-th position. If a thread has several filters, the filters of kFilterLanes units are interleaved: unit
// 0 has filters 0, 4, 8 ..., unit 1 has filters 1, 5, 9 ...
struct NchwBlock {
  FastDivmod quads, strips, jobs, position_splits, positions;
  FastDivmod units_of_group;
  int32_t units = 1;   // the number of units of a block
  int32_t groups = 1;  // the largest number of groups that a block computes
  int32_t chunk = 1;   // the number of channels per group in a buffer
  FastDivmod chunk_digit;
  // The tile of the input in shared memory: `plane` floats per channel, `pitch` floats per row. At stride 2, a row has
  // its even columns first, and its odd columns from float `half` on.
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0, half = 0;
  // The tile of dy in shared memory: floats per row, and floats per channel.
  int32_t out_pitch = 0, out_plane = 0;
  // the sizes of the block's weights and of one of its two buffers, in floats
  int32_t weights = 0, buffer = 0;
  FastDivmod window[3], in_channels;  // split an index of w into coordinates
  int32_t channel_blocks = 1, job_groups = 1;
};

// How nchw_3x3.cu divides its work. A quad is four columns, a span kQuadsOfSpan quads, a strip kRowsOfStrip rows. A
// warp computes one span of one strip. Lanes 1 to 30 load its quads; lanes 0 and 31 load the quads to its left and
// right.
constexpr int kRowsOfStrip = 5, kQuadsOfSpan = 30, kThreadsOfStrips = 256;
struct Nchw3x3 {
  FastDivmod spans, strips, channels;
  int32_t images = 0;
};

}  // namespace minidnn
