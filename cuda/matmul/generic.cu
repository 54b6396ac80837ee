// SPDX-License-Identifier: Apache-2.0
// Matrix products of any strides. Each thread computes one element of y at a time. T is the dtype of a and b; Y is the
// dtype of y and c.
#include "cpp/matmul/matmul_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class T, class Y>
__global__ void __launch_bounds__(256) matmul_generic(const __grid_constant__ MatmulProblem p, MatmulArgs args) {
  grid_stride(p.y.numel(), [&](int64_t i) { matmul_element<T, Y>(p, args, i); });
}

}  // namespace minidnn
