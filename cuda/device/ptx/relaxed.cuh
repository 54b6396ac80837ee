// SPDX-License-Identifier: Apache-2.0
// ld.relaxed and st.relaxed: accesses to global memory that other blocks write or read at the same time.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Two words of 8 bytes, at a multiple of 16 bytes. Each word is loaded or stored as a whole.
__device__ __forceinline__ void ld_relaxed_gpu_v2(const uint64_t* from, uint64_t& a, uint64_t& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
__device__ __forceinline__ void st_relaxed_gpu_v2(uint64_t* to, uint64_t a, uint64_t b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}

}  // namespace minidnn
