// SPDX-License-Identifier: Apache-2.0
// Pooling of tensors with any strides, windows and padding. In each iteration of a grid-stride loop, a thread computes
// one element of y (forward) or dx (backward).
#include "cpp/pooling/pooling_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, PoolingMode kMode>
__global__ void __launch_bounds__(256) pooling_forward(const __grid_constant__ PoolingProblem p, PoolingArgs a) {
  grid_stride(p.out.numel(), [&](int64_t i) { pool_forward_element<T, kMode>(p, a, i); });
}

template <class T, PoolingMode kMode>
__global__ void __launch_bounds__(256) pooling_backward(const __grid_constant__ PoolingProblem p, PoolingArgs a) {
  grid_stride(p.out.numel(), [&](int64_t i) { pool_backward_element<T, kMode>(p, a, i); });
}

}  // namespace minidnn
