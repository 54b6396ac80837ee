// SPDX-License-Identifier: Apache-2.0
// Vectors of elements as stored in memory, with one memory access.
#pragma once
#include "cpp/core/half.h"
#include "cuda/device/quad.cuh"

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
template <int kVec>
__device__ __forceinline__ void read_parameters(float (&p)[kVec], const void* from, int64_t at, float none) {
  if (!from) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) p[k] = none;
  } else if constexpr (kVec == 1) p[0] = typed<float>(from)[at];
  else {
#pragma unroll
    for (int k = 0; k < kVec; k += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(typed<float>(from) + at + k));
      p[k] = four.x;
      p[k + 1] = four.y;
      p[k + 2] = four.z;
      p[k + 3] = four.w;
    }
  }
}

}  // namespace minidnn
