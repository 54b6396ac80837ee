// SPDX-License-Identifier: Apache-2.0
// A grid-stride loop over the indices 0 to n - 1: each thread takes every `step`-th index, where `step` is the number
// of threads of the grid. The results do not depend on the size of the grid, so the host can choose a fast one. Indices
// have 64 bits, because tensors may have more than 2^31 elements.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

template <class Body> __device__ __forceinline__ void grid_stride(int64_t n, Body&& body) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

}  // namespace minidnn
