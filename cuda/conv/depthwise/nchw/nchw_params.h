// SPDX-License-Identifier: Apache-2.0
// How nchw.cu, nchw_filter.cu and nchw_3x3.cu divide their work among blocks of threads. The structs are kernel
// parameters, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// A thread computes kRowsOfThread rows x 4 columns of out for each of its filters.
template <int kFilters> constexpr int kRowsOfThread = kFilters == 1 || kFilters == 3 ? 4 : 2;
// How out is stored or, for dw, how dy is loaded. kNoVectors: element by element. kVectorsOfColumns: four neighbouring
// columns at a time. kVectorsOfFilters: several filters at a time.
enum : int32_t { kNoVectors, kVectorsOfColumns, kVectorsOfFilters };

// Returns the number of filters for which a thread of dw keeps sums. With three channels of x (the image of a first
// layer), it is as many filters as registers can hold.
MINIDNN_HD constexpr int filters_of_dw(int channels, int columns) { return channels != 3 ? 1 : columns >= 7 ? 4 : 8; }
// Returns the largest number of threads of a block of dw. With several filters per thread, one block uses all registers
// of an SM. It has 12 warps (three on each quarter of the SM) or 14.
MINIDNN_HD constexpr int threads_of_dw(int filters) { return filters == 1 ? 256 : filters == 8 ? 384 : 448; }
// The number of neighbouring threads of dw that take neighbouring filters. These threads read the same elements of x.
constexpr int kFilterLanes = 4;

// A unit is kFilters filters of one group. A channel tile has the units of one block. A quad is four columns.
// y and dx: the tile of a unit is `quads` quads wide and `strips` strips (of kRowsOfThread rows) high. A thread
// computes one quad of one strip.
// dw: a unit has jobs * position_splits threads. A job is a row of the window; if kS = 0, it is a tap. The tile has
// quads * rows positions. Thread i of a job takes the positions i, i + position_splits, i + 2 position_splits ... If a
// thread has several filters, kFilterLanes neighbouring units interleave their filters: unit i takes every
// kFilterLanes-th filter, beginning with number i.
struct NchwBlock {
  FastDivmod quads, strips, jobs, position_splits, positions;
  FastDivmod units_of_group;
  int32_t units = 1;       // units of a channel tile
  int32_t groups = 1;      // the most groups to which the units of a channel tile belong
  int32_t chunk = 1;       // channels of each group that shared memory holds at a time
  FastDivmod chunk_digit;  // division by `chunk`
  // The tile of `in` in shared memory has in_rows x in_columns elements. `pitch` is the distance of rows in floats;
  // `plane` is the size of a plane (one channel) in floats. With a hop of 2, each row stores its even columns first,
  // and its odd columns `half` floats after the first even column.
  int32_t in_rows = 0, in_columns = 0, pitch = 0, plane = 0, half = 0;
  int32_t out_pitch = 0, out_plane = 0;  // the tile of dy: distance of rows, size of a plane, in floats
  int32_t weights = 0, buffer = 0;       // sizes in floats: the weights of a block, one of its two buffers
  FastDivmod window[3], in_channels;     // sizes that split an index of w into coordinates
  int32_t channel_blocks = 1, job_groups = 1;
};

// How nchw_3x3.cu divides its work. The index of a warp is composed of, from fastest to slowest: span, strip, channel,
// image. A span is kQuadsOfSpan quads (of four columns) wide; a strip is kRowsOfStrip rows high. Each lane of a warp
// loads one quad. The first and the last lane load the quads to the left and to the right of the span.
constexpr int kRowsOfStrip = 5, kQuadsOfSpan = 30, kThreadsOfStrips = 256;
struct Nchw3x3 {
  FastDivmod spans, strips, channels;
  int32_t images = 0;
};

}  // namespace minidnn
