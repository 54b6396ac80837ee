// SPDX-License-Identifier: Apache-2.0
// What cuda.loss.rows tells its kernels.
#pragma once
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"
#include "cuda/rows/rows.h"

namespace minidnn {

constexpr int kLossVectors = 4;  // of 16 bytes, that a thread loads at a time

struct LossRows {
  rows::Shape shape;  // forward a row is one piece, however long
  // Forward: rows that a team takes one after the other, how far apart those are, and steps that each takes.
  int32_t turns = 1, steps = 1;
  int64_t apart = 0;
  CachePolicy policy = CachePolicy::normal;  // forward
  int64_t ignore_index = 0;
  int32_t narrow_target = 0;  // 1: int32
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 0: a row has a loss, and a gradient of it, of its own
};

}  // namespace minidnn
