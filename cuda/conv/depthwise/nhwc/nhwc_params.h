// SPDX-License-Identifier: Apache-2.0
// How nhwc.cu and nhwc_3x3.cu divide their work among blocks of threads. The structs are kernel parameters, so this
// header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// A slice is the channels of a pixel that a block computes. Its 64 bytes are two sectors of memory, or half a cache
// line.
constexpr int kSliceBytes = 64;
// A span is the outputs of a thread: neighbouring pixels of a row.
constexpr int kSpan = 7;

// y and dx: a block has one thread for each quad (four channels of a slice), span and row of a tile.
// dw: a block has one thread for each quad, job and position split. A job is a row of the window; if kS = 0, it is a
// tap. In groups, a job also has one quad of the group's channels of x. The tile has spans * rows positions. Thread i
// of those with the same quad and job takes the positions i, i + position_splits, i + 2 position_splits ...
struct NhwcBlock {
  FastDivmod spans, rows, jobs, position_splits;
  // The tile of `in` in shared memory has in_rows x in_columns pixels; the tile of dy is out_columns pixels wide. The
  // pitches are the distances of neighbouring rows in pixels: `pitch` for `in`, out_pitch for dy. They are odd, so that
  // neighbouring rows are in different banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  int32_t weights = 0, buffer = 0;    // sizes in bytes: the weights of a block, one of its two buffers
  FastDivmod window[3], in_channels;  // sizes that split an index of w into coordinates
  int32_t slices = 1, job_groups = 1;
};

// How nhwc_3x3.cu divides its work. The index of a thread is composed of, from fastest to slowest: quad (four
// channels), span (kColumnsOfRows columns), strip (`rows` rows), image. A channel tile is the quads of one block:
// kQuadsOfChannelTile quads in a grouped problem, all quads in a depthwise problem.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfChannelTile = 8;
struct Nhwc3x3 {
  FastDivmod channel_tiles, quads, spans, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
