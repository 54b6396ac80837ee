// SPDX-License-Identifier: Apache-2.0
// How cuda.lrn.cross_channel divides a local response norm where channels are innermost, for host and kernels. A thread
// has a strip: a vector of neighbouring channels of one position.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kMaxSide = 4;        // channels of a window on either side
constexpr int kStripChannels = 4;  // channels of a strip that is read element by element
constexpr int kCrossChannelThreads = 256;

struct CrossChannelParams {
  int64_t channels = 0;
  int32_t behind = 0, ahead = 0;
  // Strips in all; strips that a block writes; strips on either side of these for which it only computes g.
  uint32_t columns = 0, step = 0, halo = 0;
  FastDivmod of_row;  // strips of a row, that is, of a position
};

}  // namespace minidnn
