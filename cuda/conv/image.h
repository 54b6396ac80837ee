// SPDX-License-Identifier: Apache-2.0
// The parameters of image.cu. Std-free.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

// y of an image of few channels, from copies of x and of filters with their padding (pad_channels.cu). A chunk is 16 bytes
// of a line of x: as many pixels as a window moves by, or a part of one. Lines hold their chunks in `planes` turns: chunk c
// is the c / planes-th of plane c % planes, so that neighbouring windows are neighbouring chunks of a plane.
struct ImageProblem {
  GemmOutput y;                    // rows are positions, columns filters
  FastDivmod lines;                // of y in an image
  FastDivmod filters;              // tiles of filters
  int32_t tiles = 0;               // all lines of y, for each tile of filters
  int32_t positions = 0;           // in a line of y
  int32_t window = 0;              // lines of a window
  int32_t step = 0, dilation = 0;  // lines of x from one position to the next, and from one tap to the next
  int32_t elements = 0;            // of a window's line
  int32_t chunks = 0;              // of a window's line, rounded up to an even number
  int32_t planes = 0, plane_bytes = 0;
  int32_t line_bytes = 0;  // of a line of x
  int64_t image_bytes = 0;
  int32_t filter_count = 0, filter_bytes = 0, filter_line_bytes = 0;  // of the filters' copy
};

}  // namespace minidnn
