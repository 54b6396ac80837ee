// SPDX-License-Identifier: Apache-2.0
// The instructions of sm_80 and later behind a tensor-core loop: asynchronous copies into shared memory, matrices out of
// it, products. A warp's product is 16 x 8 over 32 bytes of k: 16 elements of 16 bits, 8 of TF32.
//
// A fragment is four words of each lane that hold 16 rows by 32 bytes of k, as ldmatrix brings them: word 0 has rows 0-7
// and the first 16 bytes, word 1 rows 8-15, words 2 and 3 the other 16 bytes; lane l has bytes 4 (l % 4) of row l / 4. It
// serves as the a of a product, and as the b of two: columns 0-7 in words 0 and 2, columns 8-15 in words 1 and 3.
#pragma once
#include "cpp/core/half.h"

namespace minidnn {

constexpr int kFragmentRows = 16, kFragmentBytes = 32;

// Dynamic shared memory, aligned for every layout here.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}
__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Copies `bytes` of kBytes and fills up with zeros; with 0 of them `from` is not read. 4, 8 or 16.
template <int kBytes> __device__ __forceinline__ void cp_async(uint32_t to, const void* from, uint32_t bytes) {
  if constexpr (kBytes == 16)  // past L1, and whole lines into L2
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the latest kGroups of this thread's groups have arrived.
template <int kGroups> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace minidnn
