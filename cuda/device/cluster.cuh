// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster (sm_90 and later), which see each other's shared memory. In a launch without clusters a block is
// one.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where nobody reads what was written before: a release waits for all stores, those to global memory too.
__device__ __forceinline__ void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, uint32_t block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// Four floats to an address of address_in_block(); not ordered but by a barrier of the cluster.
__device__ __forceinline__ void store_to_block(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// The same, counted by a barrier beside them (mbarrier.cuh) as 16 bytes that have come: who waits there sees them, and
// nobody waits for what was stored elsewhere, as a release does.
__device__ __forceinline__ void send_to_block(uint32_t address, uint32_t barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}
// What another block has at the same address: one float, or four that are 16 aligned bytes.
template <int count> __device__ __forceinline__ void load_of_block(float* v, uint32_t address, uint32_t block) {
  address = address_in_block(address, block);
  if constexpr (count == 4)
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address)
                 : "memory");
  else asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v[0]) : "r"(address) : "memory");
}

}  // namespace minidnn
