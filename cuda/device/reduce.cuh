// SPDX-License-Identifier: Apache-2.0
// Reductions over the lanes of a warp, the threads of a block and the blocks of a cluster. The order of operations
// depends only on the number of threads and blocks, so results are reproducible.
#pragma once
#include "cpp/core/host_device/team.h"
#include "cuda/device/cluster.cuh"

namespace minidnn {

// An operation of a reduction is a struct with an associative function of(a, b) and its neutral element identity().
struct SumOp {
  __device__ static float identity() { return 0; }
  __device__ static float of(float a, float b) { return a + b; }
};
// The maximum, ignoring NaN: the maximum of a number and NaN is the number.
struct MaxOp {
  __device__ static float identity() { return -INFINITY; }
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

// Reduces v over each group of `lanes` neighbouring lanes of a warp, where `lanes` is a power of two. All lanes of a
// group get the result of the group.
template <class Op> __device__ __forceinline__ float warp_reduce(float v, int lanes) {
#pragma unroll 1
  for (int offset = lanes / 2; offset > 0; offset /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffff, v, offset));
  return v;
}
// Reduces v over all lanes of the warp. The loop is unrolled.
template <class Op> __device__ __forceinline__ float warp_reduce(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffff, v, offset));
  return v;
}
// Reduces each v[e] over the lanes of a warp whose indices have the same remainder modulo `stride`, a power of two. All
// lanes get the result.
template <class Op, int kN> __device__ __forceinline__ void warp_reduce_strided(float (&v)[kN], int stride) {
#pragma unroll 1
  for (int offset = stride; offset < 32; offset *= 2)
#pragma unroll
    for (int e = 0; e < kN; ++e) v[e] = Op::of(v[e], __shfl_xor_sync(0xffffffff, v[e], offset));
}

// As __shfl_down_sync, __shfl_up_sync and __shfl_xor_sync of all lanes. shuffle() reads from lane `lane`.
template <class T> __device__ __forceinline__ T shuffle_down(T v, int offset) {
  return __shfl_down_sync(0xffffffff, v, offset);
}
template <class T> __device__ __forceinline__ T shuffle_up(T v, int offset) {
  return __shfl_up_sync(0xffffffff, v, offset);
}
template <class T> __device__ __forceinline__ T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffff, v, mask);
}
template <class T> __device__ __forceinline__ T shuffle(T v, int lane) { return __shfl_sync(0xffffffff, v, lane); }
struct ShuffleDown {
  template <class T> __device__ __forceinline__ T operator()(T v, int offset) const { return shuffle_down(v, offset); }
};
// Reduces v over each group of `lanes` adjacent lanes of a warp, where `lanes` is a power of two. The first lane of a
// group gets the result.
template <class T, class Combine, class Shuffle = ShuffleDown>
__device__ __forceinline__ T warp_reduce_down(T v, int lanes, Combine combine, Shuffle shuffle = {}) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) v = combine(v, shuffle(v, offset));
  return v;
}

// The threads of a block as a team (cpp/core/host_device/team.h), which computes sums and maxima. All threads receive
// the same bits as the result. The block is one-dimensional and has whole warps. The class uses 33 doubles of static
// shared memory.
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
    v = warp_reduce_down(v, 32, combine);
    __syncthreads();  // Other threads may still be reading the result of the previous reduction from shared memory.
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

#if __CUDA_ARCH__ >= 900
// The values that the blocks of a cluster send to each other once, and the mbarrier that counts the bytes of these
// values. An object of this struct is in shared memory.
template <int kMaxBlocks> struct ClusterExchange {
  float4 of_block[1][kMaxBlocks];
  uint64_t arrived;

  // One thread of each block must call init() before any block of the cluster sends a value.
  __device__ __forceinline__ void init() { mbarrier_init(cvta_to_shared(&arrived), 1); }
  // Sends v to all blocks of the cluster. Returns the values of all blocks, ordered by rank.
  __device__ __forceinline__ const float4* all_gather(int blocks, float4 v) {
    const float4 mine[1]{v};
    cluster_all_gather(blocks, of_block, arrived, 0, mine);
    return of_block[0];
  }
};
#endif

}  // namespace minidnn
