// SPDX-License-Identifier: Apache-2.0
// The division of a local response norm in NHWC by cuda.lrn.cross_channel, for host code and kernels. A thread has a
// strip: a vector of neighbouring channels of one position.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMaxSide = 4;        // largest number of channels in a window on either side of its centre
constexpr int kStripChannels = 4;  // number of channels in a strip that is loaded element by element
constexpr int kCrossChannelThreads = 256;

struct CrossChannelParams {
  int64_t channels = 0;
  int32_t behind = 0, ahead = 0;
  // columns: number of all strips; step: strips that a block writes; halo: strips on either side of these for which a
  // block only computes g.
  uint32_t columns = 0, step = 0, halo = 0;
  FastDivmod of_row;  // number of strips in a row; a row has the channels of one position
};

}  // namespace minidnn
