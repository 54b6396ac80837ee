// SPDX-License-Identifier: Apache-2.0
// The producer warpgroup of sm90/kernel.cu. One thread loads the operands by TMA. If kTransposeB, three other warps
// transpose operand b.
#pragma once
#include "cuda/gemm/sm90/pipeline.cuh"
#include "cuda/gemm/sm90/tf32_transpose.cuh"
#include "cuda/gemm/sm90/tile_scheduler.cuh"

namespace minidnn {

// Loads the operands of all tiles of the block into the ring. Only one thread of a block calls this function.
template <class Traits>
__device__ __forceinline__ void sm90_load_tiles(const Sm90Problem& p, const Sm90Pipeline<Traits>& ring,
                                                TileScheduler scheduler) {
  PipelineState<Traits::kStages> next;
  for (; scheduler.index < p.tiles; scheduler.advance()) {
    const Sm90WorkTile t = sm90_work_tile<Traits::kCluster, Traits::kSplit>(p, scheduler.index);
    const Sm90Phase& phase = p.phases[t.phase];
    const typename Traits::LoaderA a(&p.map_a, p, p.a, phase.a_tap, phase.a_offset, t.m * Traits::kTileM, t.batch);
    const typename Traits::LoaderB b(&p.map_b, p, p.b, phase.b_tap, phase.b_offset, t.n * Traits::kTileN, t.batch);
    Sm90StageK k;
    // The first tap of a split of k. With several phases, k is not split and the first tap is 0, so p.window fits.
    const uint32_t tap = p.k_blocks.quotient(uint32_t(t.k_begin));
    k.block = t.k_begin - int(tap * p.k_blocks.divisor);
    int none;
    sm90_digits(p.window, tap, none, k.tap);
#pragma unroll 1
    for (int i = t.k_begin; i < t.k_end; ++i, next.advance()) {
      k.channel = k.block * Traits::kK + phase.k_shift;
      mbarrier_wait_parity(ring.empty(next.stage), next.parity ^ 1);
      mbarrier_arrive_expect_tx(ring.full(next.stage), Traits::kStageBytes);
      a.load(ring.address_a(next.stage), ring.full(next.stage), k);
      b.load(ring.address_b(next.stage), ring.full(next.stage), k);
      if (++k.block == int(p.k_blocks.divisor)) {
        k.block = 0;
        for (int j = 2; j >= 0; --j) {
          if (++k.tap[j] < phase.taps[j]) break;
          k.tap[j] = 0;
        }
      }
    }
  }
}

// Transposes b in the stages (buffers) of the ring. Three warps call this function. Each transposes every third chunk
// (32 lines of 128 bytes) of the ring, and the same chunks in each round.
template <class Traits>
__device__ __forceinline__ void sm90_transpose_tiles(const Sm90Problem& p, const Sm90Pipeline<Traits>& ring,
                                                     TileScheduler scheduler) {
  constexpr int kChunks = Traits::kTileN / Traits::kK;
  const int warp = int(threadIdx.x) / 32 - 1;
  PipelineState<Traits::kStages> next;
  for (; scheduler.index < p.tiles; scheduler.advance()) {
    const Sm90WorkTile t = sm90_work_tile<Traits::kCluster, Traits::kSplit>(p, scheduler.index);
#pragma unroll 1
    for (int i = t.k_begin; i < t.k_end; ++i, next.advance()) {
      mbarrier_wait_parity(ring.full(next.stage), next.parity);
#pragma unroll 1
      for (int chunk = (warp + next.stage * (3 - kChunks % 3)) % 3; chunk < kChunks; chunk += 3) {
        sm90_transpose(ring.data + next.stage * Traits::kStageBytes + Traits::kBytesA + chunk * (Traits::kK * 128));
        fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.transposed(next.stage));
      }
    }
  }
}

}  // namespace minidnn
