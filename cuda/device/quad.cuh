// SPDX-License-Identifier: Apache-2.0
// Four neighbouring elements as one access, computed with as float. The address is a multiple of their size, and is
// written in global memory. And what larger vectors are made of: pairs of 16-bit elements, 16 bytes stored.
#pragma once
#include "cpp/core/half.h"

namespace minidnn {

__device__ __forceinline__ void read_quad(float (&v)[4], const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
}
__device__ __forceinline__ void read_quad(float (&v)[4], const bfloat16* from) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
  v[0] = __uint_as_float(four.x << 16), v[1] = __uint_as_float(four.x & 0xffff0000);
  v[2] = __uint_as_float(four.y << 16), v[3] = __uint_as_float(four.y & 0xffff0000);
}
__device__ __forceinline__ void read_quad(float (&v)[4], const float16* from) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float16 one;
    one.bits = uint16_t((i < 2 ? four.x : four.y) >> (i % 2 * 16));
    v[i] = float(one);
  }
}

// In assembly: of an assignment, behind a condition above all, compilers make a store for each word.
__device__ __forceinline__ void store_sixteen(void* to, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void store_eight(void* to, uint2 v) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}

__device__ __forceinline__ void write_quad(float* to, const float (&v)[4]) {
  store_sixteen(to, {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])});
}
__device__ __forceinline__ uint32_t pack(bfloat16, float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ __forceinline__ uint32_t pack(float16, float low, float high) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <class T> __device__ __forceinline__ void write_quad(T* to, const float (&v)[4]) {
  store_eight(to, {pack(T(), v[0], v[1]), pack(T(), v[2], v[3])});
}

}  // namespace minidnn
