// SPDX-License-Identifier: Apache-2.0
// mbarrier (sm_90): barriers in shared memory. A phase of an mbarrier completes when all expected arrivals have
// occurred and all expected bytes have arrived. The functions take 32-bit addresses of shared memory (see
// cvta_to_shared()).
#pragma once
#include "cuda/device/ptx/cvta.cuh"

namespace minidnn {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised mbarriers visible to TMA and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at an mbarrier of block `block` of the cluster. `barrier` is the address of the corresponding mbarrier in the
// shared memory of this block.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
// Arrives at the mbarrier, and adds `bytes` to the number of bytes that the current phase expects from TMA or
// st_async_cluster().
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits until the phase of the mbarrier with the given parity is complete. On a new mbarrier, a wait for parity 1
// returns immediately.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tWAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra WAIT;\n\t}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Makes this thread's writes to shared memory visible to wgmma and TMA.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace minidnn
