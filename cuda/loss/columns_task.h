// SPDX-License-Identifier: Apache-2.0
// What cuda.loss.columns tells its kernels: x is [outer][class][inner], rows are [outer][inner]. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kLossColumnsThreads = 256;
constexpr int kLossColumnsWidth = 4;  // rows of a thread

struct LossColumns {
  FastDivmod strips_of_inner;  // of kLossColumnsWidth rows beside each other
  uint32_t strips = 0;
  int32_t classes = 0;
  int64_t inner = 0, ignore_index = 0;
  CachePolicy policy = CachePolicy::normal;
  int32_t narrow_target = 0;  // 1: int32
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 0: a row has a loss, and a gradient of it, of its own
};

}  // namespace minidnn
