// SPDX-License-Identifier: Apache-2.0
// ld.relaxed and st.relaxed: accesses to global memory that other blocks write or read at the same time. Each word of 4
// bytes is loaded or stored as a whole.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// 16 bytes, at a multiple of 16 bytes.
__device__ __forceinline__ uint4 ld_relaxed_gpu_v4(const void* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
// 8 bytes, at a multiple of 8 bytes.
__device__ __forceinline__ void st_relaxed_gpu_v2(void* to, uint32_t a, uint32_t b) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b) : "memory");
}
// Accesses of this thread before the fence come before those behind it, for all threads of the GPU.
__device__ __forceinline__ void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace minidnn
