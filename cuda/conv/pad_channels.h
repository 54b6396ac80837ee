// SPDX-License-Identifier: Apache-2.0
// The parameters of pad_channels.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

// out[image][row][column] is a pixel of a few channels, zeros but for x[image][row - before[0]][column - before[1]].
struct PadChannels {
  int64_t pixels = 0;                                   // of out
  FastDivmod rows, columns;                             // of out's images
  int32_t before[2]{};                                  // x
  int32_t size[2]{};                                    // of x's images
  int32_t channels = 0;                                 // of x
  FastDivmod planes;                                    // columns go to one after another
  int32_t plane = 0;                                    // columns of a plane
  int32_t round = 0;                                    // whether float32 is rounded to TF32
  int64_t image = 0, row = 0, column = 0, channel = 0;  // strides of x, in elements
};

}  // namespace minidnn
