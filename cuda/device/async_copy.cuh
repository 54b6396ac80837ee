// SPDX-License-Identifier: Apache-2.0
// cp.async: from global to shared memory past the registers, on sm_80 and later. Complete after commit and wait, visible to
// other threads after a barrier.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// Shared memory by its own 32-bit addresses: a generic pointer's would be computed anew for every copy.
__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// `bytes` is 4, 8 or 16, and both addresses are multiples of it. Zeros are written where nothing `exists`; `from` is not
// read then, but must be an address. Nothing is written unless `wanted`.
template <int bytes>
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool exists, bool wanted = true) {
  if constexpr (bytes == 16)
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.b32 zero, %2, 0;\nsetp.ne.b32 wanted, %3, 0;\n"
        "@wanted cp.async.cg.shared.global [%0], [%1], 16, zero;\n}" ::"r"(to),
        "l"(from), "r"(int(exists)), "r"(int(wanted))
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.b32 zero, %2, 0;\nsetp.ne.b32 wanted, %3, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], %4, zero;\n}" ::"r"(to),
        "l"(from), "r"(int(exists)), "r"(int(wanted)), "n"(bytes)
        : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `pending` of this thread's latest groups are under way.
template <int pending> __device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace minidnn
