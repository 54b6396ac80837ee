// SPDX-License-Identifier: Apache-2.0
// The parameters of runs.cu. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kRunsThreads = 256, kRunsAhead = 4, kRunsOuters = 6;

// A copy of runs. A run is a span of words that is contiguous in x and in y; the runs themselves may be apart, or in a
// different order. Strides count words.
struct RunsCopy {
  uint32_t words = 0;  // in all
  FastDivmod run, outer[kRunsOuters];
  int64_t x_outer[kRunsOuters]{}, y_outer[kRunsOuters]{};  // from the innermost outwards
};

}  // namespace minidnn
