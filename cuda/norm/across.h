// SPDX-License-Identifier: Apache-2.0
// Local response norm where channels are innermost, as cuda.norm.across cuts it, for host and kernels. A thread has a
// strip: a vector of neighbouring channels of a position.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kAcrossSide = 4;  // channels of a window on either side
constexpr int kAcrossOwn = 4;   // channels of a strip that is read by elements
constexpr int kAcrossThreads = 256;

struct NormAcross {
  int64_t channels = 0;
  int32_t behind = 0, ahead = 0;
  uint32_t columns = 0, step = 0, halo = 0;  // strips; a block writes `step` of them, behind `halo`
  FastDivmod of_row;                         // strips of a row
};

}  // namespace minidnn
