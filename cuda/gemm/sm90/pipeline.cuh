// SPDX-License-Identifier: Apache-2.0
// What the warps of sm90/kernel.cu share: the compile-time parameters of the kernel, and the ring of stages in shared
// memory with its barriers.
#pragma once
#include "cuda/device/pipeline_state.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/gemm/sm90/tma_loader.cuh"

namespace minidnn {

// The template parameters of gemm_sm90 for the main loop, and constants computed from them.
template <class Element, int kM, int kN, int kStageCount, bool kPingPongTiles, int kClusterBlocks, int kSplitBlocks,
          bool kPromoteSums, Sm90Source kSourceA, Sm90Source kSourceB, int kSpatial>
struct Sm90Traits {
  using T = Element;
  static constexpr int kTileM = kM, kTileN = kN, kStages = kStageCount;
  static constexpr int kCluster = kClusterBlocks, kSplit = kSplitBlocks;
  static constexpr bool kPingPong = kPingPongTiles, kPromote = kPromoteSums;
  static constexpr int kK = 128 / sizeof(T);  // values of k in a stage
  static constexpr int kBytesA = kTileM * 128, kBytesB = kTileN * 128, kStageBytes = kBytesA + kBytesB;
  static constexpr int kWarpgroups = sm90_warpgroups(kTileM);  // the number of consumer warpgroups
  // rows of a tile per consumer warpgroup
  static constexpr int kRows = kPingPong ? kTileM : kTileM / kWarpgroups;
  static constexpr int kBlocksM = kRows / 64;  // wgmma instructions along m, with 64 rows each
  // the sums that a thread stores for each block of 64 rows
  static constexpr int kSums = kTileN / 2 / kSplit;
  using LoaderA = Sm90Loader<T, kSourceA, kTileM, 1, kSpatial>;
  using LoaderB = Sm90Loader<T, kSourceB, kTileN, kCluster, kSpatial>;
  static constexpr bool kTransposeA = LoaderA::kAlongRows && sizeof(T) == 4;
  static constexpr bool kTransposeB = LoaderB::kAlongRows && sizeof(T) == 4;
};

// The ring of stages (buffers for both operands), and its barriers: `full` (TMA has written a stage), `empty` (the
// consumers have read it) and, if kTransposeB, `transposed` (operand b is transposed).
template <class Traits> struct Sm90Pipeline {
  static constexpr int kBarriers = (Traits::kTransposeB ? 3 : 2) * Traits::kStages;
  char* data;                                          // the first stage, aligned to 1024 bytes
  uint32_t data_address;                               // the shared-memory address of `data`
  uint32_t first_full, first_empty, first_transposed;  // the shared-memory addresses of the first stage's barriers

  __device__ __forceinline__ Sm90Pipeline(char* shared, uint64_t (&barriers)[kBarriers]) {
    data_address = (cvta_to_shared(shared) + 1023) & ~1023u;
    data = shared + (data_address - cvta_to_shared(shared));
    first_full = cvta_to_shared(barriers);
    first_empty = first_full + 8 * Traits::kStages;
    first_transposed = first_empty + 8 * Traits::kStages;
  }
  // Only one thread of a block calls this function.
  __device__ __forceinline__ void init_barriers() const {
    for (int i = 0; i < Traits::kStages; ++i) {
      mbarrier_init(full(i), 1);
      // Each warp that reads the stage arrives. b is multicast, so the warps of the whole cluster do.
      mbarrier_init(empty(i), Traits::kCluster * 4 * (Traits::kPingPong ? 1 : Traits::kWarpgroups));
      if (Traits::kTransposeB) mbarrier_init(transposed(i), Traits::kTileN / Traits::kK);
    }
    fence_mbarrier_init();
  }

  __device__ __forceinline__ uint32_t full(int stage) const { return first_full + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return first_empty + 8 * stage; }
  __device__ __forceinline__ uint32_t transposed(int stage) const { return first_transposed + 8 * stage; }
  __device__ __forceinline__ uint32_t address_a(int stage) const { return data_address + stage * Traits::kStageBytes; }
  __device__ __forceinline__ uint32_t address_b(int stage) const { return address_a(stage) + Traits::kBytesA; }

  // Tells the producers of the cluster that this warp has read a stage.
  __device__ void release(int stage) const {
    if (threadIdx.x % 32 < Traits::kCluster) {
      if constexpr (Traits::kCluster > 1) mbarrier_arrive_cluster(empty(stage), threadIdx.x % 32);
      else mbarrier_arrive(empty(stage));
    }
  }
};

// With kPingPong, the two consumer warpgroups use the ring in turns, one tile each: the parity of a barrier
// distinguishes only two consecutive uses of a stage. Named barrier 1 + i lets warpgroup i begin.
__device__ __forceinline__ void sm90_order_arrive(int warpgroup) { named_barrier_arrive(1 + warpgroup, 256); }
__device__ __forceinline__ void sm90_order_wait(int warpgroup) { named_barrier_sync(1 + warpgroup, 256); }

}  // namespace minidnn
