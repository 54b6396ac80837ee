// SPDX-License-Identifier: Apache-2.0
// How cuda.pooling.planes cuts a problem into blocks; a test runs them thread by thread.
#pragma once
#include "cuda/pooling/planes_backward.h"
#include "cuda/pooling/windows_host.h"

namespace minidnn::pooling {

struct PlanesCut {
  Planes s;
  int64_t smem_bytes;  // may be more than there is
  StaticStep step;
  int64_t threads = kThreads;  // of a block
  int64_t numbered;            // elements of a block that have numbers, in 16 bits
  bool tiles, maxima;          // of windows that the compiler knows: other kernels
};
PlanesCut planes_cut(const PoolingProblem& p);

}  // namespace minidnn::pooling
