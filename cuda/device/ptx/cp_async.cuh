// SPDX-License-Identifier: Apache-2.0
// cp.async (sm_80): copies from global to shared memory that bypass the registers. A thread's copies are complete after
// cp_async_commit_group() and cp_async_wait_group(). Other threads see the copied data only after a barrier.
#pragma once
#include "cuda/device/ptx/cvta.cuh"

namespace minidnn {

// Copies kBytes bytes (4, 8 or 16) between addresses that are multiples of kBytes. If `exists` is 0, writes zeros and
// does not read `from`. If `wanted` is 0, writes nothing. With kPrefetch128, the L2 fetches the whole 128-byte line.
template <int kBytes, bool kPrefetch128 = false>
__device__ __forceinline__ void cp_async(uint32_t to, const void* from, uint32_t exists, uint32_t wanted = 1) {
  if constexpr (kBytes == 16 && kPrefetch128)
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted)
        : "memory");
  else if constexpr (kBytes == 16)
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.cg.shared.global [%0], [%1], 16, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], %4, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted), "n"(kBytes)
        : "memory");
}
// Copies `source_bytes` bytes, and appends zeros up to a total of kBytes bytes.
template <int kBytes> __device__ __forceinline__ void cp_async_zfill(uint32_t to, const void* from,
                                                                     uint32_t source_bytes) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(source_bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(kBytes), "r"(source_bytes)
                 : "memory");
}
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups of this thread's copies are complete, except for at most kPending groups, the latest ones.
template <int kPending> __device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace minidnn
