// SPDX-License-Identifier: Apache-2.0
// The sizes by which CPU engines divide their work: a chunk that fits a cache, the least work that is worth waking a
// thread, the size above which a result bypasses the caches. Tests scale them down, so that problems of a few kilobytes
// are divided as those of real nets are: into several chunks, with an uneven last one, on several threads.
#pragma once
#include <cstdint>

#include "cpp/core/hd.h"

namespace minidnn::cpu {

// 1, unless a test sets another value before the first plan is made.
int64_t work_divisor();
void set_work_divisor(int64_t);

// `usual` divided by work_divisor() and rounded up to a multiple of `step`. `usual` must be such a multiple.
inline int64_t work_size(int64_t usual, int64_t step = 1) {
  const int64_t divisor = work_divisor();
  return divisor == 1 ? usual : ceil_div(ceil_div(usual, divisor), step) * step;
}

}  // namespace minidnn::cpu
