// SPDX-License-Identifier: Apache-2.0
// What the warps of sm90/kernel.cu share: the compile-time parameters of the kernel, and the ring of stages in shared
// memory with its barriers.
#pragma once
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/gemm/sm90/tma_loader.cuh"

namespace minidnn {

// The template parameters of gemm_sm90 that concern the main loop, and constants that are computed from them.
template <class Element, int kM, int kN, int kStageCount, bool kPingPongTiles, int kClusterBlocks, int kSplitBlocks,
          bool kPromoteSums, Sm90Source kSourceA, Sm90Source kSourceB, int kSpatial>
struct Sm90Traits {
  using T = Element;
  static constexpr int kTileM = kM, kTileN = kN, kStages = kStageCount;
  static constexpr int kCluster = kClusterBlocks, kSplit = kSplitBlocks;
  static constexpr bool kPingPong = kPingPongTiles, kPromote = kPromoteSums;
  static constexpr int kK = 128 / sizeof(T);  // the number of values of k in one stage of the ring
  static constexpr int kBytesA = kTileM * 128, kBytesB = kTileN * 128, kStageBytes = kBytesA + kBytesB;
  static constexpr int kWarpgroups = sm90_warpgroups(kTileM);  // the number of consumer warpgroups
  // The number of rows of a tile that one consumer warpgroup computes.
  static constexpr int kRows = kPingPong ? kTileM : kTileM / kWarpgroups;
  static constexpr int kBlocksM = kRows / 64;  // the number of wgmma instructions along m, with 64 rows each
  using LoaderA = Sm90Loader<T, kSourceA, kTileM, 1, kSpatial>;
  using LoaderB = Sm90Loader<T, kSourceB, kTileN, kCluster, kSpatial>;
  static constexpr bool kTransposeA = LoaderA::kAlongRows && sizeof(T) == 4;
  static constexpr bool kTransposeB = LoaderB::kAlongRows && sizeof(T) == 4;
};

// The stage (buffer) of the ring that a warp uses next, and the parity of the stage's barriers. The parity changes each
// time the warp has used all stages of the ring.
template <int kStages> struct Sm90PipelineState {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ void advance(int count) {
    const int rounds = (stage + count) / kStages;
    stage += count - rounds * kStages;
    parity ^= rounds & 1;
  }
};

// The ring of stages (buffers for parts of both operands) in shared memory, and its barriers. Each stage has two
// barriers: `full` completes when TMA has written the stage, and `empty` completes when the consumers have read the
// stage. If kTransposeB, a stage has a third barrier: `transposed` completes when operand b of the stage is transposed.
template <class Traits> struct Sm90Pipeline {
  static constexpr int kBarriers = (Traits::kTransposeB ? 3 : 2) * Traits::kStages;
  char* data;                                          // pointer to the first stage (buffer), a multiple of 1024 bytes
  uint32_t data_address;                               // the shared-memory address of `data`
  uint32_t first_full, first_empty, first_transposed;  // the shared-memory addresses of the first stage's barriers

  __device__ __forceinline__ Sm90Pipeline(char* shared, uint64_t (&barriers)[kBarriers]) {
    data_address = (cvta_to_shared(shared) + 1023) & ~1023u;
    data = shared + (data_address - cvta_to_shared(shared));
    first_full = cvta_to_shared(barriers);
    first_empty = first_full + 8 * Traits::kStages;
    first_transposed = first_empty + 8 * Traits::kStages;
  }
  // Only one thread of a block calls init_barriers().
  __device__ __forceinline__ void init_barriers() const {
    for (int i = 0; i < Traits::kStages; ++i) {
      mbarrier_init(full(i), 1);
      // Each warp that reads this stage (buffer) arrives at the stage's barrier `empty`. This block multicasts b, so
      // the warps of the other blocks in the cluster arrive, too.
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

  // Tells the producers of all blocks in the cluster that the calling consumer warp has read the stage (a buffer of the
  // ring).
  __device__ void release(int stage) const {
    if (threadIdx.x % 32 < Traits::kCluster) {
      if constexpr (Traits::kCluster > 1) mbarrier_arrive_cluster(empty(stage), threadIdx.x % 32);
      else mbarrier_arrive(empty(stage));
    }
  }
};

// If kPingPong, the two consumer warpgroups take the stages (buffers) of one tile from the ring by turns. A warpgroup
// waits until the other warpgroup has taken all stages of its tile from the ring. This is necessary because the parity
// of a barrier distinguishes only two consecutive uses of a stage. Named barrier 1 + i lets warpgroup i begin.
__device__ __forceinline__ void sm90_order_arrive(int warpgroup) { named_barrier_arrive(1 + warpgroup, 256); }
__device__ __forceinline__ void sm90_order_wait(int warpgroup) { named_barrier_sync(1 + warpgroup, 256); }

}  // namespace minidnn
