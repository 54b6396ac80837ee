// SPDX-License-Identifier: Apache-2.0
// Reads or writes four neighbouring elements in one access, as floats. The address is a multiple of their total size.
// write_quad() writes to global memory.
#pragma once
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/math.cuh"

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

__device__ __forceinline__ void write_quad(float* to, const float (&v)[4]) {
  st_global_v4(to, {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])});
}
template <class T> __device__ __forceinline__ void write_quad(T* to, const float (&v)[4]) {
  st_global_v2(to, {cvt_rn_x2(T(), v[0], v[1]), cvt_rn_x2(T(), v[2], v[3])});
}

}  // namespace minidnn
