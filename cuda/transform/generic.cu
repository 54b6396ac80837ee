// SPDX-License-Identifier: Apache-2.0
// Copies over any strides and dtypes, and over dense tensors whose elements correspond by offset. A thread an element.
#include "cpp/transform/transform_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {

template <class From, class To>
__global__ void __launch_bounds__(256) transform_generic(const __grid_constant__ TransformProblem p, TransformArgs a) {
  grid_stride(p.y.numel(), [&](int64_t i) { transform_element<From, To>(p, a, p.x.offset_of(i), p.y.offset_of(i)); });
}

template <class From, class To>
__global__ void __launch_bounds__(256) transform_dense(const __grid_constant__ TransformProblem p, TransformArgs a) {
  grid_stride(p.y.numel(), [&](int64_t i) { transform_element<From, To>(p, a, i, i); });
}

}  // namespace minidnn
