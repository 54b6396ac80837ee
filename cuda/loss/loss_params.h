// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.loss.persistent_rows and cuda.loss.strided_axis. Std-free.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"
#include "cuda/rows/rows_params.h"

namespace minidnn {

constexpr int kLossVectors = 4;  // vectors of 16 bytes that a thread of persistent_rows loads at a time

struct LossRows {
  rows::Shape shape;  // forward, a row is one chunk of any length
  // Forward: a team processes rows_per_team rows, one after the other, which are row_step rows apart. It reads each in
  // `steps` steps.
  int32_t rows_per_team = 1, steps = 1;
  int64_t row_step = 0;
  CachePolicy policy = CachePolicy::normal;  // forward
  int64_t ignore_index = 0;
  int32_t narrow_target = 0;  // 1: int32
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 0: each row has its own loss and gradient
};

constexpr int kLossColumnsThreads = 256;
constexpr int kLossColumnsWidth = 4;  // rows of a thread

// x is [outer][class][inner]; rows are [outer][inner].
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
