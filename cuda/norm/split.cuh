// SPDX-License-Identifier: Apache-2.0
// Code that the kernels of the norm family share: vectors with one memory access, and moments that can be joined (Chan,
// Golub & LeVeque 1979).
#pragma once
#include "cpp/core/half.h"
#include "cuda/device/quad.cuh"
#include "cuda/norm/split.h"

namespace minidnn {

// n neighbouring elements as stored in memory, loaded and stored by one access: 16 bytes, or one element.
template <class T, int n> struct Packed {
  uint4 raw;
  __device__ __forceinline__ void load(const T* from) { raw = *reinterpret_cast<const uint4*>(from); }
  __device__ __forceinline__ float operator[](int i) const {
    const uint32_t word = (&raw.x)[i * int(sizeof(T)) / 4];
    if constexpr (sizeof(T) == 4) return __uint_as_float(word);
    else {
      T one;
      one.bits = uint16_t(i % 2 ? word >> 16 : word);
      return float(one);
    }
  }
  static __device__ __forceinline__ void store(T* to, const float (&v)[n]) {
    uint4 w;
    if constexpr (sizeof(T) == 4) {
      w = {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])};
    } else {
      w = {cvt_rn_x2(T(), v[0], v[1]), cvt_rn_x2(T(), v[2], v[3]), cvt_rn_x2(T(), v[4], v[5]),
           cvt_rn_x2(T(), v[6], v[7])};
    }
    st_global_v4(to, w);
  }
  __device__ __forceinline__ void put(T* to) const { st_global_v4(to, raw); }
  // Sets the elements to 0 where y <= 0. Elements at a NaN of y are kept.
  __device__ __forceinline__ void keep_where_positive(const Packed& y) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t& word = (&raw.x)[i];
      if constexpr (sizeof(T) == 4) word = y[i] <= 0 ? 0 : word;
      else word &= (y[2 * i] <= 0 ? 0 : 0xffff) | (y[2 * i + 1] <= 0 ? 0 : 0xffff0000);
    }
  }
};
template <class T> struct Packed<T, 1> {
  T raw;
  __device__ __forceinline__ void load(const T* from) { raw = *from; }
  __device__ __forceinline__ float operator[](int) const { return float(raw); }
  static __device__ __forceinline__ void store(T* to, const float (&v)[1]) { *to = T(v[0]); }
  __device__ __forceinline__ void put(T* to) const { *to = raw; }
  __device__ __forceinline__ void keep_where_positive(const Packed& y) { raw = y[0] <= 0 ? T(0) : raw; }
};

template <class T> __device__ __forceinline__ const T* typed(const void* p) { return static_cast<const T*>(p); }

// Loads the parameters of a vector's elements; all are `none` if `from` is null.
template <int V>
__device__ __forceinline__ void read_parameters(float (&p)[V], const void* from, int64_t at, float none) {
  if (!from) {
#pragma unroll
    for (int k = 0; k < V; ++k) p[k] = none;
  } else if constexpr (V == 1) p[0] = typed<float>(from)[at];
  else {
#pragma unroll
    for (int k = 0; k < V; k += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(typed<float>(from) + at + k));
      p[k] = four.x, p[k + 1] = four.y, p[k + 2] = four.z, p[k + 3] = four.w;
    }
  }
}
// The mean of n values, and squares = sum((x - mean)^2). Without initialisers, as __shared__ variables require.
template <class F> struct Moments {
  F n, mean, squares;
  __device__ __forceinline__ void join(const Moments& o) {
    const F all = n + o.n, apart = o.mean - mean, share = all > F(0) ? o.n / all : F(0);
    mean += apart * share;
    squares += o.squares + apart * apart * (n * share);
    n = all;
  }
  // Joins the moments of a warp's lanes; every lane obtains the result.
  __device__ __forceinline__ void join_warp() {
#pragma unroll 1  // two divisions each
    for (int lane = 1; lane < 32; lane *= 2) {
      Moments o;
      o.n = __shfl_xor_sync(0xffffffff, n, lane);
      o.mean = __shfl_xor_sync(0xffffffff, mean, lane);
      o.squares = __shfl_xor_sync(0xffffffff, squares, lane);
      // Both lanes join in the same order, lower lane first: otherwise the bits of their results would differ.
      if (threadIdx.x & lane) {
        const Moments mine = *this;
        *this = o;
        join(mine);
      } else join(o);
    }
  }
};

// The two sums of gradients: of dy, and of a product with dy.
template <class F> struct Gradients {
  F dy, product;
  __device__ __forceinline__ void join(const Gradients& o) { dy += o.dy, product += o.product; }
  // Joins the lanes whose numbers differ only in bit `first` (a power of two) and higher bits.
  template <int first = 1> __device__ __forceinline__ void join_warp() {
#pragma unroll
    for (int lane = first; lane < 32; lane *= 2) {
      dy += __shfl_xor_sync(0xffffffff, dy, lane);
      product += __shfl_xor_sync(0xffffffff, product, lane);
    }
  }
};

// Joins the sums of the kNormFinishWarps warps of a block, separately for each lane, by halves. The first warp obtains
// the result.
template <class Sums> __device__ __forceinline__ Sums join_warps(Sums total) {
  __shared__ Sums of_warp[kNormFinishWarps][32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (uint32_t half = kNormFinishWarps / 2; half > 0; half /= 2) {
    of_warp[warp][lane] = total;
    __syncthreads();
    if (warp < half) total.join(of_warp[warp + half][lane]);
    __syncthreads();
  }
  return total;
}

}  // namespace minidnn
