// SPDX-License-Identifier: Apache-2.0
// Reads or writes a quad (four neighbouring elements) in one access, and converts it to or from floats. The address is
// a multiple of the quad's size in bytes. write_quad() writes to global memory.
#pragma once
#include "cuda/device/vec.cuh"

namespace minidnn {

template <class T> __device__ __forceinline__ void read_quad(float (&v)[4], const T* from) {
  Vec<T, 4>::load(from).unpack(v);
}
// float4 instead of Vec<float, 4>: with Vec, the compiler allocates the registers of the conv kernels differently.
__device__ __forceinline__ void read_quad(float (&v)[4], const float* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  v[0] = four.x;
  v[1] = four.y;
  v[2] = four.z;
  v[3] = four.w;
}
template <class T> __device__ __forceinline__ void write_quad(T* to, const float (&v)[4]) {
  Vec<T, 4>::pack(v).store(to);
}

}  // namespace minidnn
