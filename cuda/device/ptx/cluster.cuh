// SPDX-License-Identifier: Apache-2.0
// Clusters (sm_90): groups of blocks that can access one another's shared memory. In a launch without clusters, each
// block is a cluster of its own.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

__device__ __forceinline__ uint32_t cluster_ctarank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The instruction barrier.cluster requires that all threads of a warp execute it together. __syncwarp() therefore makes
// the threads converge first.
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Arrives at the cluster barrier without ordering memory accesses. An arrival with release semantics would wait for all
// earlier stores of the thread, including stores to global memory.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync_relaxed() {
  cluster_arrive_relaxed();
  cluster_wait();
}
// Takes the address of a variable in this block's shared memory. Returns the address of the same variable in the shared
// memory of block `block` of the cluster.
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
// Stores four floats in the shared memory of another block, at an address that mapa() has returned. That block sees the
// floats only after a barrier of the cluster.
__device__ __forceinline__ void st_cluster(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// Stores four words in the shared memory of another block, and counts 16 bytes at an mbarrier of that block
// (complete_tx). That block sees the words after mbarrier_wait_parity(). In contrast to a release, the mbarrier does
// not wait for other stores of this thread.
__device__ __forceinline__ void st_async_cluster(uint32_t address, uint32_t barrier, float a, float b, float c,
                                                 float d) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d)
      : "memory");
}
__device__ __forceinline__ void st_async_cluster(uint32_t address, uint32_t barrier, const uint4& v) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(address),
      "r"(barrier), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}
// Loads kCount floats (1 or 4) from a variable in the shared memory of block `block`. `address` is the address of the
// same variable in this block. For four floats, it is a multiple of 16.
template <int kCount> __device__ __forceinline__ void ld_cluster(float* v, uint32_t address, uint32_t block) {
  address = mapa(address, block);
  if constexpr (kCount == 4)
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address)
                 : "memory");
  else asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v[0]) : "r"(address) : "memory");
}

}  // namespace minidnn
