// SPDX-License-Identifier: Apache-2.0
// The parameters of first_layer.cu. This header does not use std.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// The kernel computes y of an image of few channels from padded copies of x and of the filters (pad_channels.cu). A
// line is a row of the image. A chunk is 16 bytes of a line of x. From one position of y to the next, a window moves by
// `planes` chunks. A line of x stores its chunks in `planes` planes: chunk c is number c / planes of plane c % planes.
// So the windows of neighbouring positions begin at neighbouring chunks of a plane.
struct FirstLayerParams {
  GemmOutput y;        // y as a matrix: a row is a position, a column is a filter
  FastDivmod lines;    // lines of y in an image
  FastDivmod filters;  // tiles of filters
  // Lines of y in all images. The kernel computes them for each tile of filters.
  int32_t tiles = 0;
  int32_t positions = 0;           // positions in a line of y
  int32_t window = 0;              // lines of a window
  int32_t step = 0, dilation = 0;  // lines of x between neighbouring lines of y, and between taps
  int32_t elements = 0;            // elements in a line of a window
  int32_t chunks = 0;              // chunks in a line of a window, rounded up to an even number
  int32_t planes = 0, plane_bytes = 0;
  int32_t line_bytes = 0;  // bytes of a line of x in all planes
  int64_t image_bytes = 0;
  // The copy of the filters: number of filters, bytes of a filter, bytes of a line of a filter.
  int32_t filter_count = 0, filter_bytes = 0, filter_line_bytes = 0;
};

}  // namespace minidnn
