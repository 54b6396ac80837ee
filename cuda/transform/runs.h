// SPDX-License-Identifier: Apache-2.0
// The parameters of runs.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kRunsThreads = 256, kRunsAhead = 4, kRunsOuters = 6;

// Runs of words that lie beside each other in x and in y, which may be apart or in another order. Strides count words.
struct RunsCopy {
  uint32_t words = 0;  // in all
  FastDivmod run, outer[kRunsOuters];
  int64_t x_outer[kRunsOuters]{}, y_outer[kRunsOuters]{};  // from the innermost outwards
};

}  // namespace minidnn
