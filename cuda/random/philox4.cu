// SPDX-License-Identifier: Apache-2.0
// Random numbers and dropout. Philox generates four words at a time, for four consecutive elements. A thread computes
// two vectors of elements. Each vector has 16 bytes, or 32 bytes for 64-bit types. Dropout loads both vectors before it
// uses the first one.
// - Grid: one block per tile (cuda/device/block_tile.cuh). Block: 256 threads. Shared memory: none.
// - Bytes: the result is written once. Dropout reads x once.
// - Numerics: random_math.h generates the same words on every device.
#include "cpp/random/random_math.h"
#include "cuda/device/block_tile.cuh"

namespace minidnn {

template <class T, Random kind>
__global__ void __launch_bounds__(kTileThreads, 4)
    random_philox4(const __grid_constant__ RandomProblem p, const __grid_constant__ RandomArgs a, int64_t n,
                   int64_t dense, int64_t aligned) {
  using A = Accumulator<T>;
  constexpr int kWidth = sizeof(T) == 8 ? 4 : 16 / int(sizeof(T)), kVectors = kTileVectors, kFours = kWidth / 4;
  constexpr int kTile = kTileThreads * kVectors * kWidth;
  const int64_t begin = int64_t(blockIdx.x) * kTile;
  if (aligned && begin + kTile <= n) {
    Vec<T, kWidth> x[kVectors], y[kVectors];
    const int64_t at = begin + int(threadIdx.x) * kWidth;
    if constexpr (kind == Random::dropout) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        x[v] = Vec<T, kWidth>::load(static_cast<const T*>(a.x) + at + v * kTileThreads * kWidth);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        A from[4] = {}, to[4];
        if constexpr (kind == Random::dropout) {
#pragma unroll
          for (int i = 0; i < 4; ++i) from[i] = A(x[v].get(4 * f + i));
        }
        random_four<kind>(a, uint64_t(at + v * kTileThreads * kWidth) / 4 + f, from, to);
#pragma unroll
        for (int i = 0; i < 4; ++i) y[v].put(4 * f + i, T(to[i]));
      }
      *reinterpret_cast<Vec<T, kWidth>*>(static_cast<T*>(a.out) + at + v * kTileThreads * kWidth) = y[v];
    }
    return;
  }
#pragma unroll 1
  for (int i = int(threadIdx.x); i < kTile / 4; i += kTileThreads) {
    const int64_t group = begin / 4 + i;
    if (4 * group < n) random_elements<kind, T>(p, a, group, n, dense);
  }
}

}  // namespace minidnn
