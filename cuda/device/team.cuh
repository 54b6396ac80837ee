// SPDX-License-Identifier: Apache-2.0
// A block as a team (cpp/core/team.h): sums and maxima over all threads of the block. The result has the same bits in
// every thread and in every run. Blocks are one-dimensional and have whole warps, at most 1024 threads. Uses 33 doubles
// of static shared memory.
#pragma once
#include "cpp/core/team.h"

namespace minidnn {

class BlockReduce {
 public:
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return blockDim.x; }
  template <class T> __device__ T sum(T v) {
    return reduce(v, [](T a, T b) { return a + b; });
  }
  template <class T> __device__ T max(T v) {
    return reduce(v, [](T a, T b) { return max_or_nan(a, b); });
  }

 private:
  template <class T, class Combine> __device__ T reduce(T v, Combine combine) {
    __shared__ double slots[33];
    T* shared = reinterpret_cast<T*>(slots);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) v = combine(v, __shfl_down_sync(0xffffffff, v, offset));
    __syncthreads();  // other threads may still read the slots of the previous reduction
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < warps; ++w) v = combine(v, shared[w]);
      shared[32] = v;
    }
    __syncthreads();
    return shared[32];
  }
};

}  // namespace minidnn
