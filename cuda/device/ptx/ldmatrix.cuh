// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix. ldmatrix and stmatrix move four 8 x 8 matrices of 16-bit elements between shared
// memory and the registers of a warp. Lane l holds two elements of row l / 4 of each matrix. Lane l also passes the
// 32-bit address of row l % 8 of matrix l / 8. A row has 16 bytes.
#pragma once
#include "cpp/core/host_device/hd.h"

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
// The instruction stmatrix needs sm_90.
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

// Transposes an 8 x 8 matrix of 16-bit elements in the registers of a warp. Each lane holds one 32-bit word, which
// contains two elements.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t words) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(words));
  return r;
}
// Exchanges words between lanes 2 i and 2 i + 1. Afterwards, lane 2 i has the word `first` of both lanes, and lane 2 i
// + 1 has the word `second` of both lanes.
__device__ __forceinline__ uint2 exchange_pair(uint32_t first, uint32_t second) {
  const bool odd = threadIdx.x & 1;
  const uint32_t other = __shfl_xor_sync(0xffffffff, odd ? first : second, 1);
  return odd ? make_uint2(other, second) : make_uint2(first, other);
}
// Exchanges words among the lanes 4 i to 4 i + 3. Afterwards, lane 4 i + j has the word `words[j]` of all four lanes.
__device__ __forceinline__ void exchange_four(uint32_t (&words)[4]) {
  const bool high = threadIdx.x & 2;
  const uint2 first = exchange_pair(words[0], words[1]), second = exchange_pair(words[2], words[3]);
  const uint2 mine = high ? second : first, given = high ? first : second;
  const uint2 other{__shfl_xor_sync(0xffffffff, given.x, 2), __shfl_xor_sync(0xffffffff, given.y, 2)};
  words[0] = high ? other.x : mine.x;
  words[1] = high ? other.y : mine.y;
  words[2] = high ? mine.x : other.x;
  words[3] = high ? mine.y : other.y;
}

}  // namespace minidnn
