// SPDX-License-Identifier: Apache-2.0
// How a grid covers a range, and how one follows another. A range: each thread takes every stride-th item, so that any
// grid is right and the host picks a fast one. 64-bit throughout: tensors may hold more than 2^31 elements.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

template <class Body> __device__ __forceinline__ void grid_stride(int64_t n, Body&& body) {
  int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

// Of a programmatic launch: the next grid may start where this one leaves room, and what the one before writes is there
// after the wait. Before sm_90 grids just follow one another.
__device__ __forceinline__ void let_next_grid_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_grid_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace minidnn
