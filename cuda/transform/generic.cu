// SPDX-License-Identifier: Apache-2.0
// Copies over any strides and dtypes, and over dense tensors whose elements correspond by offset. A thread an element.
// A kernel serves all dtypes of x: it chooses its loop once, which spares eight of nine kernels.
#include "cpp/transform/transform_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {
namespace {

template <class From, class To, bool dense>
__device__ __forceinline__ void copy_all(const TransformProblem& p, const TransformArgs& a) {
  grid_stride(p.y.numel(), [&](int64_t i) {
    transform_element<From, To>(p, a, dense ? i : p.x.offset_of(i), dense ? i : p.y.offset_of(i));
  });
}

template <class To, bool dense>
__device__ __forceinline__ void copy_from_any(const TransformProblem& p, const TransformArgs& a) {
  switch (p.x.dtype) {
    case DType::float32:
      return copy_all<float, To, dense>(p, a);
    case DType::float64:
      return copy_all<double, To, dense>(p, a);
    case DType::float16:
      return copy_all<float16, To, dense>(p, a);
    case DType::bfloat16:
      return copy_all<bfloat16, To, dense>(p, a);
    case DType::int8:
      return copy_all<int8_t, To, dense>(p, a);
    case DType::uint8:
      return copy_all<uint8_t, To, dense>(p, a);
    case DType::int32:
      return copy_all<int32_t, To, dense>(p, a);
    case DType::int64:
      return copy_all<int64_t, To, dense>(p, a);
    case DType::boolean:
      return copy_all<bool, To, dense>(p, a);
  }
}

}  // namespace

template <class To>
__global__ void __launch_bounds__(256) transform_generic(const __grid_constant__ TransformProblem p, TransformArgs a) {
  copy_from_any<To, false>(p, a);
}

template <class To>
__global__ void __launch_bounds__(256) transform_dense(const __grid_constant__ TransformProblem p, TransformArgs a) {
  copy_from_any<To, true>(p, a);
}

}  // namespace minidnn
