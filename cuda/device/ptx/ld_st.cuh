// SPDX-License-Identifier: Apache-2.0
// Loads and stores that the compiler does not generate from assignments.
#pragma once
#include "cuda/device/cache.cuh"

namespace minidnn {

// Loads with an L2 eviction priority.
__device__ __forceinline__ uint4 ld_global_cache_hint(CachePolicy policy, const uint4* from) {
  uint4 v;
  asm("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from), "l"(uint64_t(policy)));
  return v;
}
__device__ __forceinline__ uint2 ld_global_cache_hint(CachePolicy policy, const uint2* from) {
  uint2 v;
  asm("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;" : "=r"(v.x), "=r"(v.y) : "l"(from), "l"(uint64_t(policy)));
  return v;
}

// Stores of 16 and 8 bytes. For an assignment, above all a conditional one, the compiler emits a store for each word.
__device__ __forceinline__ void st_global_v4(void* to, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void st_global_v2(void* to, uint2 v) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
// Predicated stores. For an `if`, the compiler emits a branch and computes the address behind it.
__device__ __forceinline__ void st_global_if(bool condition, void* to, uint32_t v) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.b32 [%1], %2;}" ::"r"(uint32_t(condition)), "l"(to),
               "r"(v)
               : "memory");
}
__device__ __forceinline__ void st_global_if(bool condition, void* to, uint16_t v) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.b16 [%1], %2;}" ::"r"(uint32_t(condition)), "l"(to),
               "h"(v)
               : "memory");
}

// Accesses by 32-bit addresses of shared memory. For a pointer, the compiler computes the address again for each
// access.
__device__ __forceinline__ uint32_t ld_shared_b32(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 ld_shared_v4_f32(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint4 ld_shared_v4_b32(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
// Not ordered with other accesses to shared memory, such as wgmma's.
__device__ __forceinline__ void ld_shared_unordered(uint32_t address, uint32_t& a, uint32_t& b) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address));
}
__device__ __forceinline__ void ld_shared_unordered(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c,
                                                    uint32_t& d) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
}
__device__ __forceinline__ void st_shared_b16(uint32_t address, uint16_t v) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(v) : "memory");
}

}  // namespace minidnn
