// SPDX-License-Identifier: Apache-2.0
// Copies. transform_generic: any strides and dtypes, one element per thread. transform_dense: dense tensors whose
// elements correspond by offset, 16 bytes of the shorter dtype at a time. A kernel handles all dtypes of x, which saves
// eight of nine kernels.
#include "cpp/transform/transform_math.h"
#include "cuda/device/grid.cuh"

namespace minidnn {
namespace {

template <class T, int count> struct alignas(16) Piece {
  T elements[count];
  __device__ void load(const void* from, int64_t piece) {
    const uint4* words = static_cast<const uint4*>(from) + piece * int64_t(sizeof(Piece) / 16);
#pragma unroll
    for (int i = 0; i < int(sizeof(Piece) / 16); ++i) reinterpret_cast<uint4*>(this)[i] = words[i];
  }
  __device__ void store(void* to, int64_t piece) const {
    uint4* words = static_cast<uint4*>(to) + piece * int64_t(sizeof(Piece) / 16);
#pragma unroll
    for (int i = 0; i < int(sizeof(Piece) / 16); ++i) words[i] = reinterpret_cast<const uint4*>(this)[i];
  }
};

template <class From, class To>
__device__ __forceinline__ void copy_dense(const TransformProblem& p, const TransformArgs& a) {
  constexpr int kCount = 16 / int(sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  const bool aligned = (reinterpret_cast<uint64_t>(a.x) | reinterpret_cast<uint64_t>(a.y)) % 16 == 0;
  const int64_t n = p.y.numel(), pieces = aligned ? n / kCount : 0;
  constexpr int kAhead = (sizeof(From) + sizeof(To)) * kCount <= 48 ? 2 : 1;  // pieces in flight
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < pieces; i += kAhead * step) {
    Piece<From, kCount> x[kAhead];
    Piece<To, kCount> y[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u * step < pieces) {
        x[u].load(a.x, i + u * step);
        if (p.reads_y) y[u].load(a.y, i + u * step);
      }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u * step < pieces) {
        const TransformArgs here{x[u].elements, y[u].elements, a.alpha, a.beta};
#pragma unroll
        for (int k = 0; k < kCount; ++k) transform_element<From, To>(p, here, k, k);
        y[u].store(a.y, i + u * step);
      }
  }
  grid_stride(n - pieces * kCount,
              [&](int64_t i) { transform_element<From, To>(p, a, pieces * kCount + i, pieces * kCount + i); });
}

template <class To> struct CopyDense {
  const TransformProblem& p;
  const TransformArgs& a;
  template <class From> __device__ __forceinline__ void operator()(From) const { copy_dense<From, To>(p, a); }
};

template <class To> struct CopyElement {
  const TransformProblem& p;
  const TransformArgs& a;
  int64_t x_at, y_at;
  template <class From> __device__ __forceinline__ void operator()(From) const {
    transform_element<From, To>(p, a, x_at, y_at);
  }
};

// Calls f(From()). f is a functor, because NVRTC treats a generic lambda as host code.
template <class F> __device__ __forceinline__ void with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return f(float());
    case DType::float64:
      return f(double());
    case DType::float16:
      return f(float16());
    case DType::bfloat16:
      return f(bfloat16());
    case DType::int8:
      return f(int8_t());
    case DType::uint8:
      return f(uint8_t());
    case DType::int32:
      return f(int32_t());
    case DType::int64:
      return f(int64_t());
    case DType::boolean:
      return f(bool());
  }
}

}  // namespace

// The offsets of an element are computed before the switch on the dtype. Otherwise the code of their divisions would be
// there nine times.
template <class To>
__global__ void __launch_bounds__(256) transform_generic(const __grid_constant__ TransformProblem p, TransformArgs a) {
  grid_stride(p.y.numel(),
              [&](int64_t i) { with_dtype(p.x.dtype, CopyElement<To>{p, a, p.x.offset_of(i), p.y.offset_of(i)}); });
}

template <class To>
__global__ void __launch_bounds__(256) transform_dense(const __grid_constant__ TransformProblem p, TransformArgs a) {
  with_dtype(p.x.dtype, CopyDense<To>{p, a});
}

}  // namespace minidnn
