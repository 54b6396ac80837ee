// SPDX-License-Identifier: Apache-2.0
// A grid-stride loop over n items: each thread takes every `step`-th item. Any size of grid is correct, so the host
// chooses a fast one. Indices have 64 bits, because tensors may hold more than 2^31 elements.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

template <class Body> __device__ __forceinline__ void grid_stride(int64_t n, Body&& body) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

}  // namespace minidnn
