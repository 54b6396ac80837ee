// SPDX-License-Identifier: Apache-2.0
// Copies over any strides and dtypes, an element a thread, and over dense tensors whose elements correspond by offset,
// 16 bytes of the shorter dtype at a time. A kernel serves all dtypes of x: it chooses its loop once, which spares eight
// of nine kernels.
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
  constexpr int kAhead = (sizeof(From) + sizeof(To)) * kCount <= 48 ? 2 : 1;  // pieces under way
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

template <class From, class To, bool dense>
__device__ __forceinline__ void copy_all(const TransformProblem& p, const TransformArgs& a) {
  if constexpr (dense) copy_dense<From, To>(p, a);
  else
    grid_stride(p.y.numel(), [&](int64_t i) { transform_element<From, To>(p, a, p.x.offset_of(i), p.y.offset_of(i)); });
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
