// SPDX-License-Identifier: Apache-2.0
// How cuda.lrn.cross_channel divides a local response norm of an NHWC tensor among threads, for host code and kernels.
// A thread computes a strip: a vector of neighbouring channels of one position.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kMaxSide = 4;  // the maximum number of channels in a window before or after its centre
// the number of channels in a strip if channels are loaded one by one
constexpr int kStripChannels = 4;
constexpr int kCrossChannelThreads = 256;

struct CrossChannelParams {
  int64_t channels = 0;
  int32_t behind = 0, ahead = 0;
  // `columns` is the number of strips of the tensor. A block writes `step` strips. Of the `halo` strips before and
  // after them, it computes only the factor g (lrn_math.h).
  uint32_t columns = 0, step = 0, halo = 0;
  FastDivmod of_row;  // divides by the number of strips per position
};

}  // namespace minidnn
