// SPDX-License-Identifier: Apache-2.0
// Padded copies of images and of filters, which pad_channels.cu makes. Host only.
#pragma once
#include "cpp/core/dtype.h"
#include "cuda/conv/first_layer/pad_channels_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {

// A padded copy of x or of the filters: [image or filter][row][column][channel]. With planes = 2, a row has its even
// columns first, then its odd columns; in general, it has `planes` groups of columns.
struct Padded {
  TensorDesc x;  // the tensor that is copied
  int64_t rows = 0, columns = 0, channels = 0, before[2]{}, planes = 1, round = 0;

  size_t bytes() const {
    const int64_t all = x.shape[0] * rows * columns * channels * int64_t(itemsize(x.dtype));
    return size_t(ceil_div(all, int64_t(256)) * 256);
  }
  PadChannels parameters() const {
    PadChannels p;
    p.pixels = x.shape[0] * rows * columns;
    p.rows = FastDivmod(rows);
    p.columns = FastDivmod(columns);
    for (int i = 0; i < 2; ++i) {
      p.before[i] = int32_t(before[i]);
      p.size[i] = int32_t(x.shape[2 + i]);
    }
    p.channels = int32_t(x.shape[1]);
    p.planes = FastDivmod(planes);
    p.plane = int32_t(columns / planes);
    p.round = int32_t(round);
    p.image = x.stride[0];
    p.channel = x.stride[1];
    p.row = x.stride[2];
    p.column = x.stride[3];
    return p;
  }
  void run(const cuda::Kernel& kernel, const void* from, void* to, Stream stream) const {
    cuda::LaunchConfig launch;
    const PadChannels p = parameters();
    launch.block = {256};
    launch.grid = {unsigned(ceil_div(p.pixels, int64_t(256)))};
    cuda::launch(kernel, launch, stream, p, from, to);
  }
  KernelSpec kernel() const { return kernel_for(x.dtype, channels); }
  static KernelSpec kernel_for(DType type, int64_t channels) {
    return {"cuda/conv/first_layer/pad_channels.cu",
            cat("minidnn::conv_pad_channels<uint", 8 * itemsize(type), "_t, ", channels, ">")};
  }
};

}  // namespace minidnn
