// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster (sm_90 and later), which see each other's shared memory. In a launch without clusters a block is
// one.
#pragma once
#include "cuda/device/mbarrier.cuh"

namespace minidnn {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The barrier of a cluster takes a warp as one, so the threads of a warp converge first.
__device__ __forceinline__ void cluster_wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where nobody reads what was written before: a release waits for all stores, those to global memory too.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync_relaxed() { cluster_arrive_relaxed(), cluster_wait(); }
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
// Of each row, thread i of every block leaves `mine` with block i, at its own rank, and all wait for those of the others.
// `come` is a barrier of one arrival, whose phase of that parity this is. Stores elsewhere are not waited for.
template <int rows, int most>
__device__ __forceinline__ void give_to_blocks(uint32_t blocks, float4 (&of_block)[rows][most], uint64_t& come,
                                               uint32_t parity, const float4 (&mine)[rows]) {
  const uint32_t barrier = shared_address(&come);
  if (threadIdx.x == 0) barrier_expect(barrier, blocks * rows * 16);
  if (threadIdx.x < blocks) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
      send_to_block(address_in_block(shared_address(&of_block[i][cluster_rank()]), threadIdx.x),
                    address_in_block(barrier, threadIdx.x), mine[i].x, mine[i].y, mine[i].z, mine[i].w);
  }
  barrier_wait(barrier, parity);
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
