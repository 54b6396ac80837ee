// SPDX-License-Identifier: Apache-2.0
// How nhwc.cu and nhwc_3x3.cu divide their work among blocks of threads. Std-free: kernel parameters.
#pragma once
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

constexpr int kSliceBytes = 64;  // of a slice, the channels of a pixel that a block takes: two sectors, half a line
constexpr int kRun = 7;          // outputs of a run, neighbours in a row that a thread computes

// A block has one thread for each quad (four channels of a slice), run and row of a tile. For dw it has one thread for
// each quad, job and walker. A job is a row of the window (with kS = 0: a tap) and, in groups, a quad of the group's
// channels of x. The `walkers` of a job share the runs and rows of the tile.
struct NhwcBlock {
  FastDivmod runs, rows, jobs, walkers;
  // Columns and rows of the tile of in, columns of the tile of dy. The pitches are pixels from row to row of the tile
  // of in and of dy; they are odd, to keep neighbouring rows in different banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  int32_t weights = 0, buffer = 0;    // bytes: all of w that a block needs; one of the two buffers
  FastDivmod window[3], in_channels;  // to split an index of w into its digits
  int32_t slices = 1, job_groups = 1;
};

// How nhwc_3x3.cu divides its work. The index of a thread has the digits quad of channels (fastest), run of
// kColumnsOfRows columns, strip of `rows` rows, image. The blocks of a bundle take kQuadsOfBundle groups of four
// channels, or all quads of a depthwise problem.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfBundle = 8;
struct Nhwc3x3 {
  FastDivmod bundles, quads, runs, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
