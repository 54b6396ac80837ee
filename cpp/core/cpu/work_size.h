// SPDX-License-Identifier: Apache-2.0
// The sizes by which CPU engines divide their work. Examples are a chunk that fits a cache, the least work that is
// worth waking a thread, and the size above which stores of a result bypass the caches. Tests make these sizes smaller.
// Test problems of a few kilobytes are then divided as the problems of real networks are: into several chunks, with an
// uneven last chunk, on several threads.
#pragma once
#include <cstdint>

#include "cpp/core/host_device/hd.h"

namespace minidnn::cpu {

// Returns the divisor of all work sizes. It is 1, unless a test sets another value before the first plan is made.
int64_t work_divisor();
void set_work_divisor(int64_t);

// Returns the work size `usual`, divided by work_divisor() and rounded up to a multiple of `step`. `usual` itself must
// be a multiple of `step`.
inline int64_t work_size(int64_t usual, int64_t step = 1) {
  const int64_t divisor = work_divisor();
  return divisor == 1 ? usual : ceil_div(ceil_div(usual, divisor), step) * step;
}

}  // namespace minidnn::cpu
