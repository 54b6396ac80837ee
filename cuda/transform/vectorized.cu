// SPDX-License-Identifier: Apache-2.0
// y = alpha x + beta y, or a cast, for dense tensors x and y whose corresponding elements have the same offset.
// A chunk has as many elements as 16 bytes of the shorter dtype. A thread has two chunks in flight if it has enough
// registers, else one. Block: 256 threads. No shared memory. x is read once and y is written once. If beta is not 0, y
// is also read once.
#include "cuda/device/grid.cuh"
#include "cuda/transform/dtype_switch.cuh"

namespace minidnn {
namespace {

template <class T, int count> struct alignas(16) Chunk {
  T elements[count];
  __device__ void load(const void* from, int64_t chunk) {
    const uint4* words = static_cast<const uint4*>(from) + chunk * int64_t(sizeof(Chunk) / 16);
#pragma unroll
    for (int i = 0; i < int(sizeof(Chunk) / 16); ++i) reinterpret_cast<uint4*>(this)[i] = words[i];
  }
  __device__ void store(void* to, int64_t chunk) const {
    uint4* words = static_cast<uint4*>(to) + chunk * int64_t(sizeof(Chunk) / 16);
#pragma unroll
    for (int i = 0; i < int(sizeof(Chunk) / 16); ++i) words[i] = reinterpret_cast<const uint4*>(this)[i];
  }
};

template <class From, class To>
__device__ __forceinline__ void copy_dense(const TransformProblem& p, const TransformArgs& a) {
  constexpr int kCount = 16 / int(sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  const bool aligned = (reinterpret_cast<uint64_t>(a.x) | reinterpret_cast<uint64_t>(a.y)) % 16 == 0;
  const int64_t n = p.y.numel(), chunks = aligned ? n / kCount : 0;
  // The number of chunks that a thread has in flight. A chunk has as many elements as 16 bytes of the shorter dtype.
  constexpr int kAhead = (sizeof(From) + sizeof(To)) * kCount <= 48 ? 2 : 1;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < chunks; i += kAhead * step) {
    Chunk<From, kCount> x[kAhead];
    Chunk<To, kCount> y[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u * step < chunks) {
        x[u].load(a.x, i + u * step);
        if (p.reads_y) y[u].load(a.y, i + u * step);
      }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u * step < chunks) {
        const TransformArgs here{x[u].elements, y[u].elements, a.alpha, a.beta};
#pragma unroll
        for (int k = 0; k < kCount; ++k) transform_element<From, To>(p, here, k, k);
        y[u].store(a.y, i + u * step);
      }
  }
  grid_stride(n - chunks * kCount,
              [&](int64_t i) { transform_element<From, To>(p, a, chunks * kCount + i, chunks * kCount + i); });
}

template <class To> struct CopyDense {
  const TransformProblem& p;
  const TransformArgs& a;
  template <class From> __device__ __forceinline__ void operator()(From) const { copy_dense<From, To>(p, a); }
};

}  // namespace

template <class To>
__global__ void __launch_bounds__(256)
    transform_vectorized(const __grid_constant__ TransformProblem p, TransformArgs a) {
  with_dtype(p.x.dtype, CopyDense<To>{p, a});
}

}  // namespace minidnn
