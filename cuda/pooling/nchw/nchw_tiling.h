// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.nchw divides a problem into blocks. A test runs these blocks thread by thread.
#pragma once
#include "cuda/pooling/nchw/nchw_params.h"
#include "cuda/pooling/problem_windows.h"

namespace minidnn::cuda::pooling {

struct PlanesCut {
  Planes s;
  int64_t smem_bytes;  // may be more than the device has
  StaticStep step;
  int64_t threads = kThreads;  // per block
  int64_t numbered;            // elements of a block that have a 16-bit number
  bool tiles, maxima;          // which of the other kernels runs, for windows that the compiler knows
};
PlanesCut planes_cut(const PoolingProblem& p);

}  // namespace minidnn::cuda::pooling
