// SPDX-License-Identifier: Apache-2.0
// BlockTile, for elementwise kernels that read and write each element of a dense tensor once. Each block processes one
// tile of the tensor. Each thread loads several 16-byte vectors of the tile before it uses any of them; a grid-stride
// loop would be slower, because a block would wait for its loads in each iteration. In an incomplete or unaligned tile,
// threads load single elements. Offsets have 64 bits.
#pragma once
#include "cuda/device/block_tile_params.h"
#include "cuda/device/vec.cuh"

namespace minidnn {

// The tile of a tensor that one block processes. A thread holds kVectors vectors of kWidth elements from each tensor.
template <int kVectors, int kWidth> struct BlockTile {
  static constexpr int kElements = kTileThreads * kVectors * kWidth;
  int64_t begin, n;
  bool whole;  // true if the tile is complete and its address is aligned, so that threads can load vectors

  __device__ __forceinline__ BlockTile(int64_t n, bool aligned)
      : begin(int64_t(blockIdx.x) * kElements), n(n), whole(aligned && begin + kElements <= n) {}

  __device__ __forceinline__ int64_t vector_at(int v) const {
    return begin + (v * kTileThreads + int(threadIdx.x)) * kWidth;
  }
  __device__ __forceinline__ int64_t element_at(int v, int i) const {
    return begin + (v * kWidth + i) * kTileThreads + int(threadIdx.x);
  }

  template <class T> __device__ __forceinline__ void load(const void* from, Vec<T, kWidth> (&to)[kVectors]) const {
    const T* x = static_cast<const T*>(from);
    if (whole) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) to[v] = Vec<T, kWidth>::load(x + vector_at(v));
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const int64_t at = element_at(v, i);
          to[v].put(i, at < n ? x[at] : T());
        }
    }
  }
  template <class T> __device__ __forceinline__ void store(void* to, const Vec<T, kWidth> (&from)[kVectors]) const {
    T* y = static_cast<T*>(to);
    if (whole) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Vec<T, kWidth>*>(y + vector_at(v)) = from[v];
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const int64_t at = element_at(v, i);
          if (at < n) y[at] = from[v].get(i);
        }
    }
  }
};

}  // namespace minidnn
