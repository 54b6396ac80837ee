// SPDX-License-Identifier: Apache-2.0
// cp.async: from global to shared memory past the registers, on sm_80 and later. Complete after commit and wait,
// visible to other threads after a barrier.
#pragma once
#include "cuda/device/shared_address.cuh"

namespace minidnn {

// `bytes` is 4, 8 or 16, and both addresses are multiples of it. Zeros are written where `exists` is 0, and `from` is
// not read then. Nothing is written where `wanted` is 0. `whole_lines` brings the 128 bytes about what is read into the
// L2, for those who come back for the rest.
template <int bytes, bool whole_lines = false>
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, uint32_t exists, uint32_t wanted = 1) {
  if constexpr (bytes == 16 && whole_lines)
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted)
        : "memory");
  else if constexpr (bytes == 16)
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.cg.shared.global [%0], [%1], 16, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred zero, wanted;\nsetp.eq.u32 zero, %2, 0;\nsetp.ne.u32 wanted, %3, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], %4, zero;\n}" ::"r"(to),
        "l"(from), "r"(exists), "r"(wanted), "n"(bytes)
        : "memory");
}
// The same of no more than `read` bytes; zeros for the rest.
template <int bytes> __device__ __forceinline__ void copy_some(uint32_t to, const void* from, uint32_t read) {
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(bytes), "r"(read)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `pending` of this thread's latest groups are under way.
template <int pending> __device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace minidnn
