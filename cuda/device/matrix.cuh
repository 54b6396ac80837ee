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

}  // namespace minidnn
