// SPDX-License-Identifier: Apache-2.0
// The structs that describe how nchw.cu, nchw_filter.cu and nchw_3x3.cu divide their work among blocks of threads. They
// are kernel parameters, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// The number of rows of the output that a thread computes for each of its filters. A thread computes 4 columns in each
// row.
template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 || kFilters == 3 ? 4 : 2;
// How a kernel stores its output or, for dw, loads dy. kNoVectors: element by element. kVectorsOfColumns: four
// neighbouring columns at a time. kVectorsOfFilters: several filters at a time.
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };

// Returns the number of filters for which a thread of nchw_filter.cu keeps sums. If the thread has three channels of x
// (the image of a first layer), it keeps sums for as many filters as registers allow.
MINIDNN_HD constexpr int filters_of_dw(int channels, int columns) { return channels != 3 ? 1 : columns >= 7 ? 4 : 8; }
// Returns the largest number of threads of a block of nchw_filter.cu. If a thread has several filters, one block uses
// all registers of an SM. The block then has 12 warps (8 filters per thread; three warps on each quarter of the SM) or
// 14 warps (4 filters per thread).
MINIDNN_HD constexpr int threads_of_dw(int filters) { return filters == 1 ? 256 : filters == 8 ? 384 : 448; }
// In nchw_filter.cu, this number of neighbouring threads take neighbouring filters. They read the same elements of x.
constexpr int kFilterLanes = 4;

// How nchw.cu and nchw_filter.cu divide their work. A unit is kFilters filters of one group. A channel tile is the
// units of one block. A quad is four columns.
// y and dx: a tile of outputs is `quads` quads wide, and its rows are divided into `strips` strips. Each thread
// computes one quad of one strip for one unit.
// dw: each thread sums one job of one unit over some positions. A job is a row of the window or, if kS = 0, one element
// of the window. A position is a quad of a row of the tile. Each job of a unit has position_splits threads: thread i
// sums over the positions i, i + position_splits, i + 2 position_splits ...
// If a thread of dw has several filters, the filters of kFilterLanes neighbouring units alternate: unit i takes every
// kFilterLanes-th filter, from filter i on.
struct NchwBlock {
  FastDivmod quads, strips, jobs, position_splits, positions;
  FastDivmod units_of_group;
  int32_t units = 1;       // the number of units (kFilters filters of one group) of a block
  int32_t groups = 1;      // the largest number of groups to which the filters of a block belong
  int32_t chunk = 1;       // the number of channels of each group that a buffer contains
  FastDivmod chunk_digit;  // divides by the number of channels in a buffer
  // The tile of the input in shared memory. Each plane (one channel) has in_rows x in_columns elements. `pitch` is the
  // distance of neighbouring rows, and `plane` the size of a plane, both in floats. If neighbouring windows start two
  // columns apart, each row stores its even columns first; its odd columns begin `half` floats after the first even
  // column.
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0, half = 0;
  // The tile of dy in shared memory. out_pitch is the distance of neighbouring rows, and out_plane the size of a plane,
  // both in floats.
  int32_t out_pitch = 0, out_plane = 0;
  // The sizes of the weights of a block, and of one of its two buffers, in floats.
  int32_t weights = 0, buffer = 0;
  FastDivmod window[3], in_channels;  // the divisors that split an index of w into coordinates
  int32_t channel_blocks = 1, job_groups = 1;
};

// How nchw_3x3.cu divides its work. A quad is four columns. A span is kQuadsOfSpan quads wide, and a strip is
// kRowsOfStrip rows high. A warp's index is composed of, from fastest to slowest: span, strip, channel, image. Each
// lane of a warp loads one quad: lanes 1 to 30 load the quads of the span, lane 0 loads the quad to the left of the
// span, and lane 31 the quad to the right.
constexpr int kRowsOfStrip = 5, kQuadsOfSpan = 30, kThreadsOfStrips = 256;
struct Nchw3x3 {
  FastDivmod spans, strips, channels;
  int32_t images = 0;
};

}  // namespace minidnn
