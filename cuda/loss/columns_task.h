// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.loss.strided_axis. x is [outer][class][inner]; rows are [outer][inner]. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"

namespace minidnn {

constexpr int kLossColumnsThreads = 256;
constexpr int kLossColumnsWidth = 4;  // rows of a thread

struct LossColumns {
  FastDivmod strips_of_inner;  // a strip: kLossColumnsWidth neighbouring rows
  uint32_t strips = 0;
  int32_t classes = 0;
  int64_t inner = 0, ignore_index = 0;
  CachePolicy policy = CachePolicy::normal;
  int32_t narrow_target = 0;  // 1: int32
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 0: each row has its own loss and gradient
};

}  // namespace minidnn
