// SPDX-License-Identifier: Apache-2.0
// The parameters of first_layer.cu. Std-free.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// Computes y of an image of few channels from padded copies of x and of the filters (pad_channels.cu). A line is a row
// of the image. A chunk is 16 bytes of a line of x. From position to position of y, a window moves by `planes` chunks
// (one or several). A line of x stores its chunks in `planes` planes: chunk c is number c / planes of plane c % planes.
// Therefore neighbouring windows begin at neighbouring chunks of a plane.
struct FirstLayerParams {
  GemmOutput y;                    // its rows are positions, its columns are filters
  FastDivmod lines;                // lines of y in an image
  FastDivmod filters;              // tiles of filters
  int32_t tiles = 0;               // lines of y in all images: the tiles of each tile of filters
  int32_t positions = 0;           // positions in a line of y
  int32_t window = 0;              // lines of a window
  int32_t step = 0, dilation = 0;  // lines of x from line to line of y, and from tap to tap
  int32_t elements = 0;            // elements in a line of a window
  int32_t chunks = 0;              // chunks in a line of a window, rounded up to an even number
  int32_t planes = 0, plane_bytes = 0;
  int32_t line_bytes = 0;  // a line of x with all its planes
  int64_t image_bytes = 0;
  int32_t filter_count = 0, filter_bytes = 0, filter_line_bytes = 0;  // the copy of the filters
};

}  // namespace minidnn
