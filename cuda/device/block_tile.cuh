// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels that read and write each element once. A block holds one tile of a dense tensor in registers.
// Each thread holds several 16-byte vectors of the tile, and loads all of them before it uses any. The grid has one
// block per tile; in a grid-stride loop, a block would wait for its loads in each iteration. In the last tile, and if
// an address is not a multiple of 16, elements are loaded one by one: neighbouring threads load neighbouring elements.
// This has as many bytes in flight but takes more instructions. Offsets have 64 bits.
#pragma once
#include "cuda/device/block_tile_params.h"
#include "cuda/device/vec.cuh"

namespace minidnn {

// The tile of one block. Of each tensor, a thread holds kVectors vectors of kWidth elements.
template <int kVectors, int kWidth> struct BlockTile {
  static constexpr int kElements = kTileThreads * kVectors * kWidth;
  int64_t begin, n;
  bool whole;  // true if the tile is complete and aligned, so that vectors can be loaded

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
