// SPDX-License-Identifier: Apache-2.0
// The parameters of pad_channels.cu. This header does not use std.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// out[image][row][column] = x[image][row - before[0]][column - before[1]], or zeros outside of x. Each element is a
// pixel with all its channels.
struct PadChannels {
  int64_t pixels = 0;        // the number of pixels of `out`, in all images
  FastDivmod rows, columns;  // the size of an image of `out`
  // the rows of zeros above x, and the columns of zeros to its left
  int32_t before[2]{};
  int32_t size[2]{};     // the rows and columns of an image of x
  int32_t channels = 0;  // the number of channels of x
  // The number of groups of columns in a row. Column c is in group c % planes, at index c / planes.
  FastDivmod planes;
  int32_t plane = 0;                                    // the number of columns in a group
  int32_t round = 0;                                    // 1 if float32 elements are rounded to TF32, else 0
  int64_t image = 0, row = 0, column = 0, channel = 0;  // the strides of x, in elements
};

}  // namespace minidnn
