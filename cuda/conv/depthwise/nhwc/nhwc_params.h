// SPDX-License-Identifier: Apache-2.0
// The structs that describe how nhwc.cu and nhwc_3x3.cu divide their work among blocks of threads. They are kernel
// parameters, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// A slice is the channels of a pixel that a block computes: 64 bytes, or two sectors of memory.
constexpr int kSliceBytes = 64;
// A span is the adjacent pixels of a row that a thread computes.
constexpr int kSpan = 7;

// How nhwc.cu divides the work of a block. A quad is four channels of a slice. A position is one span of a row of a
// tile. y and dx: a thread computes one quad of one position. dw: a job is a row of the window or, if kS = 0, one
// element of the window; in a grouped convolution, for four input channels. A thread sums one job of one quad over
// every position_splits-th position.
struct NhwcBlock {
  FastDivmod spans, rows, jobs, position_splits;
  // The tiles in shared memory: in_rows x in_columns pixels of `in`, and out_columns pixels per row of dy. The
  // distances of rows, `pitch` and out_pitch, are odd numbers of pixels, so that adjacent rows start in different
  // banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  // the sizes of the block's weights and of one of its two buffers, in bytes
  int32_t weights = 0, buffer = 0;
  FastDivmod window[3], in_channels;  // split an index of w into coordinates
  int32_t slices = 1, job_groups = 1;
};

// How nhwc_3x3.cu divides its work. A quad is four channels, a span kColumnsOfRows columns, a strip `rows` rows. A
// thread computes one quad of one span of one strip. A block has 8 quads of a grouped convolution, or all quads of a
// depthwise convolution.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfChannelTile = 8;
struct Nhwc3x3 {
  FastDivmod channel_tiles, quads, spans, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
