// SPDX-License-Identifier: Apache-2.0
// y = alpha x + beta y, or a cast, for any strides and dtypes. Each thread computes one element at a time, in a
// grid-stride loop. Block: 256 threads. No shared memory.
#include "cuda/device/grid.cuh"
#include "cuda/transform/dtype_switch.cuh"

namespace minidnn {
namespace {

template <class To> struct CopyElement {
  const TransformProblem& p;
  const TransformArgs& a;
  int64_t x_at, y_at;
  template <class From> __device__ __forceinline__ void operator()(From) const {
    transform_element<From, To>(p, a, x_at, y_at);
  }
};

}  // namespace

// The divisions are outside the switch, which would repeat their code for each of nine dtypes.
template <class To>
__global__ void __launch_bounds__(256) transform_generic(const __grid_constant__ TransformProblem p, TransformArgs a) {
  grid_stride(p.y.numel(),
              [&](int64_t i) { with_dtype(p.x.dtype, CopyElement<To>{p, a, p.x.offset_of(i), p.y.offset_of(i)}); });
}

}  // namespace minidnn
