// SPDX-License-Identifier: Apache-2.0
// The structs that describe how nhwc.cu and nhwc_3x3.cu divide their work among blocks of threads. They are kernel
// parameters, so this header does not use std.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

// A slice is the channels of a pixel that a block computes. It has 64 bytes: two sectors of memory, or half a cache
// line.
constexpr int kSliceBytes = 64;
// The number of neighbouring pixels of a row that a thread computes. They are called a span.
constexpr int kSpan = 7;

// How nhwc.cu divides its work. A quad is four channels of a slice (64 bytes of channels). A span is kSpan neighbouring
// pixels. A position is one span of one row of a tile.
// y and dx: each thread of a block computes one quad of one position.
// dw: each thread sums one job of one quad over some positions. A job is a row of the window or, if kS = 0, one element
// of the window. In a grouped convolution, each such row or element has one job for every four input channels of a
// group. Each job of a quad has position_splits threads: thread i sums over the positions i, i + position_splits, i + 2
// position_splits ...
struct NhwcBlock {
  FastDivmod spans, rows, jobs, position_splits;
  // The sizes of the tiles in shared memory. The tile of `in` has in_rows x in_columns pixels; the tile of dy is
  // out_columns pixels wide. Neighbouring rows are `pitch` pixels apart in the tile of `in`, and out_pitch pixels apart
  // in the tile of dy. Both distances are odd, so that neighbouring rows start in different banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  // The sizes of the weights of a block, and of one of its two buffers, in bytes.
  int32_t weights = 0, buffer = 0;
  FastDivmod window[3], in_channels;  // the divisors that split an index of w into coordinates
  int32_t slices = 1, job_groups = 1;
};

// How nhwc_3x3.cu divides its work. A quad is four channels, a span is kColumnsOfRows columns, and a strip is `rows`
// rows. A thread's index is composed of, from fastest to slowest: quad, span, strip, image. A channel tile is the quads
// of one block. It has kQuadsOfChannelTile quads in a grouped convolution, and all quads in a depthwise convolution.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfChannelTile = 8;
struct Nhwc3x3 {
  FastDivmod channel_tiles, quads, spans, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
