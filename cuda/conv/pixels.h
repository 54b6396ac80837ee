// SPDX-License-Identifier: Apache-2.0
// How pixels.cu cuts its work into blocks of threads. Std-free: a kernel parameter.
#pragma once
#include "cuda/conv/stencil.h"

namespace minidnn {

constexpr int kPixelBytes = 64;  // of a slice of channels: two sectors, half a line
constexpr int kRun = 7;          // neighbouring outputs of a row that a thread computes

// A block has a thread for each four channels of a slice, each run and each row of a tile. For dw it has one for each
// four channels and each of `jobs` (rows of the window, quads of a group's channels), times `walkers` that share runs
// and rows.
struct PixelBlock {
  FastDivmod runs, rows, jobs, walkers;
  // The tile of in, and pixels from row to row of it and of the tile of dy; an odd pitch keeps rows in different banks.
  FastDivmod in_columns, out_columns;
  int32_t in_rows = 0, pitch = 0, out_pitch = 0;
  int32_t weights = 0, buffer = 0;    // bytes: all of w that a block needs, and one of its two buffers
  FastDivmod window[3], in_channels;  // of w, to take its indices apart
  int32_t slices = 1, job_groups = 1;
};

// How pixel_rows.cu cuts its work: threads stand for quads of channels, runs of kColumnsOfRows along a row, strips of
// `rows` down, images; the first fastest. A bundle has the quads of kQuadsOfBundle groups of four, or all.
constexpr int kColumnsOfRows = 4, kThreadsOfRows = 128, kQuadsOfBundle = 8;
struct PixelRows {
  FastDivmod bundles, quads, runs, strips;
  int32_t rows = 0, images = 0;
};

}  // namespace minidnn
