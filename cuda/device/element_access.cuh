// SPDX-License-Identifier: Apache-2.0
// How elementwise kernels load operands that are dense, broadcast or strided (PointwiseAccess). A Grid has the members
// `indexing` (an ElementIndexing), `shape` (FastDivmod objects of its dimensions) and `by_divisors` (1 if there are
// fewer than 2^31 elements, so that 32-bit divisions by FastDivmod suffice, else 0).
#pragma once
#include "cpp/pointwise/pointwise_math.h"
#include "cuda/device/block_tile_params.h"
#include "cuda/device/vec.cuh"

namespace minidnn {

template <class T> struct StoredAs {
  using type = T;
};
template <> struct StoredAs<bool> {
  using type = uint8_t;
};
template <class T> using Stored = typename StoredAs<T>::type;

template <class T> __device__ __forceinline__ PointwiseType<T> value_of(Stored<T> v) { return PointwiseType<T>(v); }

// A bool in memory may be any byte; every byte but 0 is true.
template <> __device__ __forceinline__ int32_t value_of<bool>(uint8_t v) { return v != 0; }

// Returns the offset of an element in an operand, for tensors with 2^31 elements or more. The function is not inlined,
// because a 64-bit division takes about a hundred instructions.
template <class Grid> __device__ __noinline__ int64_t far_offset(const Grid& g, const PointwiseAccess& x, int64_t i) {
  return g.indexing.offset(x, i);
}
// Returns the offset of an element in a periodic operand, for tensors with fewer than 2^31 elements.
__device__ __forceinline__ int64_t offset_in_period(const PointwiseAccess& x, const PointwisePeriod& period,
                                                    int64_t i) {
  uint32_t n = period.inner.quotient(uint32_t(i));
  return int64_t(period.length.divmod(n)) * x.stride;
}
template <class Grid>
__device__ __forceinline__ int64_t offset_of(const Grid& g, const PointwiseAccess& x, int64_t i) {
  if (x.kind == Access::dense) return i;
  if (!g.by_divisors) return far_offset(g, x, i);
  uint32_t n = uint32_t(i);
  int64_t at = 0;
#pragma unroll 1
  for (int d = int(g.indexing.rank) - 1; d >= 0; --d) at += int64_t(g.shape[d].divmod(n)) * x.strides[d];
  return at;
}

template <class T, int kVectors, int kWidth>
__device__ __forceinline__ void load_vectors(const PointwiseAccess& x, const PointwisePeriod& period, const void* from,
                                             int64_t at, Vec<T, kWidth> (&to)[kVectors]) {
  constexpr int kStep = kTileThreads * kWidth;
  const T* source = static_cast<const T*>(from);
  if (x.kind == Access::dense) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v] = Vec<T, kWidth>::load(source + at + v * kStep);
  } else if (x.inner == 1 && x.length > 1) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      to[v] = Vec<T, kWidth>::load(source + offset_in_period(x, period, at + v * kStep));
  } else {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const T value = source[x.length == 1 ? 0 : offset_in_period(x, period, at + v * kStep)];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) to[v].put(i, value);
    }
  }
}

template <class T, int kWidth, class Grid>
__device__ __forceinline__ void load_elements(const Grid& g, const PointwiseAccess& x, const void* from, int64_t at,
                                              Vec<T, kWidth> (&to)[1]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const int64_t element = at + i * kTileThreads;
    to[0].put(i, element < g.indexing.n ? static_cast<const T*>(from)[offset_of(g, x, element)] : T());
  }
}

}  // namespace minidnn
