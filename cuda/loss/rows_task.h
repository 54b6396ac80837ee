// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.loss.persistent_rows.
#pragma once
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"
#include "cuda/rows/rows.h"

namespace minidnn {

constexpr int kLossVectors = 4;  // vectors of 16 bytes that a thread loads at a time

struct LossRows {
  rows::Shape shape;  // forward, a row is one piece of any length
  // Forward: rows that a team processes one after the other; steps of a row; rows from one to the next.
  int32_t turns = 1, steps = 1;
  int64_t apart = 0;
  CachePolicy policy = CachePolicy::normal;  // forward
  int64_t ignore_index = 0;
  int32_t narrow_target = 0;  // 1: int32
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 0: each row has its own loss and gradient
};

}  // namespace minidnn
