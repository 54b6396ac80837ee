// SPDX-License-Identifier: Apache-2.0
// How nhwc.cu and nhwc_3x3.cu divide their work among blocks of threads. Std-free: kernel parameters.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// A slice is the channels of a pixel that a block computes: two sectors of memory, half a cache line.
constexpr int kSliceBytes = 64;
// A span is the outputs of a thread, neighbours in a row.
constexpr int kSpan = 7;

// y and dx: a block has one thread for each quad (four channels of a slice), span and row of a tile.
// dw: a block has one thread for each quad, job and position split. A job is a row of the window (with kS = 0: a tap)
// and, in groups, a quad of the group's channels of x. The positions of a tile are its spans times its rows; the threads
// of a quad and job take every position_splits-th of them.
struct NhwcBlock {
  FastDivmod spans, rows, jobs, position_splits;
  // Columns and rows of the tile of in, columns of the tile of dy. The pitches are pixels from row to row of the tile
  // of in and of dy; they are odd, to keep neighbouring rows in different banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  int32_t weights = 0, buffer = 0;    // bytes of all weights that a block needs, and of one of the two buffers
  FastDivmod window[3], in_channels;  // sizes that split an index of w into its digits
  int32_t slices = 1, job_groups = 1;
};

// How nhwc_3x3.cu divides its work. The index of a thread has the digits quad of channels (fastest), span of
// kColumnsOfRows columns, strip of `rows` rows, image. A channel tile has kQuadsOfChannelTile groups of four channels,
// or all quads of a depthwise problem.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfChannelTile = 8;
struct Nhwc3x3 {
  FastDivmod channel_tiles, quads, spans, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
