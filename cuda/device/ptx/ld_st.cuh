// SPDX-License-Identifier: Apache-2.0
// Loads and stores that the compiler does not generate from ordinary C++ code.
#pragma once
#include "cuda/device/cache.cuh"

namespace minidnn {

// Loads of 16 and 8 bytes from global memory, with an L2 eviction policy.
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

// Stores of 16 and 8 bytes to global memory, in one instruction. For an assignment in C++, the compiler may emit one
// store for each 32-bit word, especially if the assignment is conditional.
__device__ __forceinline__ void st_global_v4(void* to, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void st_global_v2(void* to, uint2 v) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
// Predicated stores: one instruction that stores `v` if `condition` is true. An `if` around an assignment would become
// a branch.
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

// Predicated loads of memory that no thread writes. If the condition is false, v keeps its value.
__device__ __forceinline__ void ld_global_nc_if(bool condition, const void* from, uint32_t& v) {
  asm("{.reg .pred p; setp.ne.u32 p, %1, 0; @p ld.global.nc.b32 %0, [%2];}"
      : "+r"(v)
      : "r"(uint32_t(condition)), "l"(from));
}
__device__ __forceinline__ void ld_global_nc_if(bool condition, const void* from, uint16_t& v) {
  asm("{.reg .pred p; setp.ne.u32 p, %1, 0; @p ld.global.nc.b16 %0, [%2];}"
      : "+h"(v)
      : "r"(uint32_t(condition)), "l"(from));
}
// Fetches the cache line of `at` into the L2 if the condition is true.
__device__ __forceinline__ void prefetch_global_l2_if(bool condition, const void* at) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p prefetch.global.L2 [%1];}" ::"r"(uint32_t(condition)), "l"(at));
}

// Adds four floats to those at a multiple of 16 bytes in global memory (sm_90). The order of the additions of different
// threads is not defined.
__device__ __forceinline__ void red_add_v4_f32(float* to, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// Fetches the line of an address in global memory into the L2, and waits for nothing.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Loads and stores in shared memory by 32-bit addresses. For accesses through a pointer, the compiler computes the
// address again at each access.
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
// Loads from shared memory that the compiler may move across other accesses to shared memory, including those of wgmma.
__device__ __forceinline__ void ld_shared_unordered(uint32_t address, uint32_t& a, uint32_t& b) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address));
}
__device__ __forceinline__ void ld_shared_unordered(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c,
                                                    uint32_t& d) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
}
__device__ __forceinline__ void st_shared_v4_b32(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void st_shared_v4_f32(uint32_t address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
__device__ __forceinline__ void st_shared_v2_if(bool condition, uint32_t address, uint32_t a, uint32_t b) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.shared.v2.b32 [%1], {%2, %3};}" ::"r"(uint32_t(condition)),
               "r"(address), "r"(a), "r"(b)
               : "memory");
}
__device__ __forceinline__ void st_shared_b16(uint32_t address, uint16_t v) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(v) : "memory");
}

}  // namespace minidnn
