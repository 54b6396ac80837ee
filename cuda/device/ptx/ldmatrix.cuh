// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix: move matrices of 8 x 8 elements of 16 bits between a warp's registers and shared
// memory, four at a time. Lane l holds two elements of row l / 4 of each matrix, and passes the 32-bit address of row l
// % 8 (16 bytes) of matrix l / 8.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&f)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&f)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
               : "r"(address)
               : "memory");
}
// stmatrix: sm_90 and later.
__device__ __forceinline__ void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

// Transposes one matrix in registers, one word in each lane.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t words) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(words));
  return r;
}
// Lanes 2 i and 2 i + 1 exchange words: the even lane then holds both first words, the odd lane both second words.
__device__ __forceinline__ uint2 exchange_pair(uint32_t first, uint32_t second) {
  const bool odd = threadIdx.x & 1;
  const uint32_t other = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
  return odd ? make_uint2(other, second) : make_uint2(first, other);
}

}  // namespace minidnn
