// SPDX-License-Identifier: Apache-2.0
// The parameters of first_layer.cu. This header does not use std.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The parameters of first_layer.cu. x and the filters are padded copies, made by pad_channels.cu. A line is a row of an
// image; a chunk is 16 bytes of a line. Adjacent windows start `planes` chunks apart. A line has its chunks in `planes`
// planes: with two planes, first chunks 0, 2, 4 ..., then chunks 1, 3, 5 ... Adjacent windows thus start at adjacent
// chunks of a plane.
struct FirstLayerParams {
  GemmOutput y;        // y as a matrix [position, filter]
  FastDivmod lines;    // the number of rows of y in an image
  FastDivmod filters;  // the number of tiles of kFilters filters
  // the number of rows of y in all images
  int32_t tiles = 0;
  int32_t positions = 0;  // the number of positions in a row of y
  int32_t window = 0;     // the number of rows of a window
  // the stride and the dilation along the height
  int32_t step = 0, dilation = 0;
  int32_t elements = 0;  // the number of elements (columns x channels) in a row of a window
  // The number of 16-byte chunks in a row of a window, rounded up to an even number.
  int32_t chunks = 0;
  int32_t planes = 0, plane_bytes = 0;
  int32_t line_bytes = 0;  // the number of bytes of a row of the padded copy of x
  int64_t image_bytes = 0;
  // the number of filters, the bytes of a filter, and the bytes of a row of a filter
  int32_t filter_count = 0, filter_bytes = 0, filter_line_bytes = 0;
};

}  // namespace minidnn
