// SPDX-License-Identifier: Apache-2.0
// Gather for any strides. Each thread computes one element of y (forward) or of dx (backward) at a time, in a
// grid-stride loop. In the backward direction, index_sort.cu has sorted the indices before. Block: 256 threads. No
// shared memory.
#include "cpp/gather/gather_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T> __global__ void __launch_bounds__(256)
    gather_generic(const __grid_constant__ GatherProblem p, GatherArgs a) {
  grid_stride(p.y.numel(), [&](int64_t i) { gather_element<T>(p, a, i); });
}

template <class T> __global__ void __launch_bounds__(256)
    gather_sum_generic(const __grid_constant__ GatherProblem p, GatherArgs a, GatherOrder o) {
  grid_stride(p.x.numel(), [&](int64_t i) { gather_sum<T>(p, a, o, i); });
}

}  // namespace minidnn
