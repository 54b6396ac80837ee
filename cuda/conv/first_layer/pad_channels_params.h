// SPDX-License-Identifier: Apache-2.0
// The parameters of pad_channels.cu. This header does not use std.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// The kernel computes out[image][row][column] = x[image][row - before[0]][column - before[1]], or zeros outside of x.
// Each such element is a pixel with all its channels.
struct PadChannels {
  int64_t pixels = 0;        // the number of pixels of all images of out (the padded copy)
  FastDivmod rows, columns;  // the numbers of rows and columns of an image of out (the padded copy)
  // The number of rows of zeros above x, and of columns of zeros to the left of x.
  int32_t before[2]{};
  int32_t size[2]{};     // the numbers of rows and columns of an image of x
  int32_t channels = 0;  // the number of channels of x
  // The columns of a row of the copy are stored in this number of planes. Column c is in plane c % planes, at index c /
  // planes.
  FastDivmod planes;
  int32_t plane = 0;  // the number of columns in a row of the copy, divided by `planes`
  int32_t round = 0;  // 1 if float32 elements are rounded to TF32, else 0
  int64_t image = 0, row = 0, column = 0, channel = 0;  // the strides of x, in elements
};

}  // namespace minidnn
