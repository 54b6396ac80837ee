// SPDX-License-Identifier: Apache-2.0
// Matrices of 8 x 8 words of 16 bits between a warp's registers and shared memory, four at once: lane l has two words of
// row l / 4 of each, and names the 16 bytes of row l % 8 of matrix l / 8 by their 32-bit address.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

__device__ __forceinline__ void ldmatrix(uint32_t (&f)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&f)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(address)
               : "memory");
}
// sm_90 and later.
__device__ __forceinline__ void stmatrix(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void stmatrix_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

// In registers: a matrix, one word of each lane.
__device__ __forceinline__ uint32_t transposed(uint32_t words) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(words));
  return r;
}
// Neighbouring lanes exchange words, so that the even one holds the first of both and the odd one the second.
__device__ __forceinline__ uint2 exchange_pair(uint32_t first, uint32_t second) {
  const bool odd = threadIdx.x & 1;
  const uint32_t other = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
  return odd ? make_uint2(other, second) : make_uint2(first, other);
}

}  // namespace minidnn
