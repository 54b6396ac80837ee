// SPDX-License-Identifier: Apache-2.0
// The parameters of first_layer.cu. This header does not use std.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The parameters of a kernel that computes y of a network's first layer. It reads padded copies of x and of the
// filters, made by pad_channels.cu; here, x is the padded copy. A line is a row of an image. A chunk is 16 bytes of a
// line of x. The windows of neighbouring positions of y start `planes` chunks apart. A line of x consists of `planes`
// planes. It stores chunk c at index c / planes of plane c % planes. So the windows of neighbouring positions start at
// neighbouring chunks of the same plane.
struct FirstLayerParams {
  GemmOutput y;        // y as a matrix: each row is a position (pixel) of y, each column is a filter
  FastDivmod lines;    // the number of rows of y in an image
  FastDivmod filters;  // the number of tiles of filters; a tile has kFilters filters
  // The number of rows of y in all images. The kernel computes each row once for each tile of filters.
  int32_t tiles = 0;
  int32_t positions = 0;  // the number of positions in a row of y
  int32_t window = 0;     // the number of rows of a window
  // Neighbouring rows of y read rows of x that are `step` rows apart. Neighbouring rows of a window read rows of x that
  // are `dilation` rows apart.
  int32_t step = 0, dilation = 0;
  int32_t elements = 0;  // the number of elements in a row of a window, all channels included
  // The number of 16-byte chunks in a row of a window, rounded up to an even number.
  int32_t chunks = 0;
  int32_t planes = 0, plane_bytes = 0;
  int32_t line_bytes = 0;  // the number of bytes of a row of the padded copy of x
  int64_t image_bytes = 0;
  // Describes the copy of the filters: the number of filters, the bytes of a filter, and the bytes of a row of a
  // filter.
  int32_t filter_count = 0, filter_bytes = 0, filter_line_bytes = 0;
};

}  // namespace minidnn
