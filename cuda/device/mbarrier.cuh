// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory (sm_90): a phase ends when all arrivals and all announced bytes have come. Addresses are
// 32-bit shared-memory addresses; see shared_address().
#pragma once
#include "cuda/device/shared_address.cuh"

namespace minidnn {

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes inits visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// On the barrier at the same address in another block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// Arrives, and announces bytes that the copy engine will bring.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of that parity has ended. A fresh barrier counts as having ended a phase of parity 1.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tWAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra WAIT;\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// What this thread wrote to shared memory is there for wgmma and the copy engine.
__device__ __forceinline__ void copy_engine_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace minidnn
