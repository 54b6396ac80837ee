// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of cuda.loss.persistent_rows and cuda.loss.strided_axis. This file does not use the
// standard library, because NVRTC compiles it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/loss/loss_math.h"
#include "cuda/device/cache.cuh"
#include "cuda/rows/rows_params.h"

namespace minidnn {

constexpr int kLossVectors = 4;  // the number of 16-byte vectors that a thread of persistent_rows loads at a time

struct LossRows {
  rows::Shape shape;  // in forward, a row is never divided among blocks
  // In forward, a team of threads processes rows_per_team rows, which are row_step rows apart. It reads each row in
  // `steps` iterations.
  int32_t rows_per_team = 1, steps = 1;
  int64_t row_step = 0;
  CachePolicy policy = CachePolicy::normal;  // the cache policy for the loads of x in forward
  int64_t ignore_index = 0;
  int32_t narrow_target = 0;  // 1 if the targets are int32, 0 if they are int64
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 1 if the losses are summed or averaged, 0 if each row has its own loss and gradient
};

constexpr int kLossColumnsThreads = 256;
constexpr int kLossColumnsWidth = 4;  // the number of neighbouring rows that a thread processes

// The division of a cross-entropy whose axis is not innermost. x has the shape [outer][class][inner], and the rows have
// the shape [outer][inner].
struct LossColumns {
  // Divides by the number of strips in the dimension `inner`. A strip is kLossColumnsWidth adjacent rows, which one
  // thread processes.
  FastDivmod strips_of_inner;
  uint32_t strips = 0;
  int32_t classes = 0;
  int64_t inner = 0, ignore_index = 0;
  CachePolicy policy = CachePolicy::normal;
  int32_t narrow_target = 0;  // 1 if the targets are int32, 0 if they are int64
  int32_t smoothed = 0;
  int32_t reduced = 0;  // 1 if the losses are summed or averaged, 0 if each row has its own loss and gradient
};

}  // namespace minidnn
