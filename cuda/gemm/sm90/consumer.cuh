// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup of sm90/kernel.cu: its main loop over k with wgmma, and the reduction of sums over the blocks of
// a cluster.
#pragma once
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/gemm/sm90/pipeline.cuh"
#include "cuda/gemm/sm90/tf32_transpose.cuh"
#include "cuda/gemm/sm90/tile_scheduler.cuh"

namespace minidnn {

// For kPromote: the number of 128-byte blocks of k after which the sums of wgmma are added to float32 sums. For every
// eight values of k, truncation costs at most 2^-25 of the sum.
constexpr int kSm90PromoteBlocks = 8;

// The wgmma descriptor of the matrix at a shared-memory address. If along_rows, a line of 128 bytes is 64 rows at one
// k, and the next 64 rows begin k_lines lines later. If not, a line is all k of one row.
__device__ __forceinline__ uint64_t sm90_matrix(uint32_t address, bool along_rows, int k_lines) {
  return make_smem_descriptor<true>(address, along_rows ? uint32_t(k_lines) * 128 : 16, 1024);
}

// A warpgroup's sums of one tile; `sums` are the accumulators of wgmma.
template <class Traits> struct Sm90Accumulators {
  static constexpr int kBlocksM = Traits::kBlocksM, kCount = Traits::kTileN / 2;
  float sums[kBlocksM][kCount];
  // for kPromote: float32 sums, to which `sums` are added every few blocks of k
  float promoted[Traits::kPromote ? kBlocksM : 1][Traits::kPromote ? kCount : 1];

  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int j = 0; j < kBlocksM; ++j) warpgroup_fence_operand(sums[j]);
  }
  __device__ __forceinline__ void clear_promoted() {
#pragma unroll
    for (auto& row : promoted)
#pragma unroll
      for (float& v : row) v = 0;
  }
  __device__ __forceinline__ void promote() {
#pragma unroll
    for (int j = 0; j < kBlocksM; ++j) {
      warpgroup_fence_operand(sums[j]);
#pragma unroll
      for (int e = 0; e < kCount; ++e) promoted[j][e] += sums[j][e];
    }
  }
  __device__ __forceinline__ void take_promoted() {
#pragma unroll
    for (int j = 0; j < kBlocksM; ++j)
#pragma unroll
      for (int e = 0; e < kCount; ++e) sums[j][e] = promoted[j][e];
  }
};

// The main loop of a consumer warpgroup. A stage is a buffer with 128 bytes along k of both operands.
template <class Traits> struct Sm90MainLoop {
  using T = typename Traits::T;
  using LoaderA = typename Traits::LoaderA;
  using LoaderB = typename Traits::LoaderB;
  static constexpr int kBlocksM = Traits::kBlocksM;
  static constexpr bool kTransposeA = Traits::kTransposeA;
  static constexpr bool kAAlongRows = LoaderA::kAlongRows, kBAlongRows = LoaderB::kAlongRows && !Traits::kTransposeB;
  // The distances in shared memory of successive wgmma operands (32 bytes along k), in units of 16 bytes.
  static constexpr int kStepA = kAAlongRows ? Traits::kK / 4 * 128 >> 4 : 2;
  static constexpr int kStepB = kBAlongRows ? Traits::kK / 4 * 128 >> 4 : 2;

  const Sm90Pipeline<Traits>& ring;
  const uint32_t offset_a;  // the byte offset of this warpgroup's rows of a in a stage
  const uint32_t first_b;   // the address of b in the first stage
  uint32_t address_a;       // for kTransposeA: the address of this lane's rows of a in the first stage
  // for kTransposeA: this lane's values of a from one stage
  uint32_t a_values[kTransposeA ? 4 : 1][kBlocksM][4];

  __device__ __forceinline__ Sm90MainLoop(const Sm90Pipeline<Traits>& pipeline, int warpgroup)
      : ring(pipeline),
        offset_a(Traits::kPingPong ? 0 : warpgroup * Traits::kRows * 128),
        first_b(pipeline.address_b(0)) {
    address_a = kTransposeA ? ring.data_address + offset_a + sm90_transposed_offset<kBlocksM>() : 0;
    // Keeps address_a in a register. Otherwise, the compiler computes it again for each stage.
    asm volatile("" : "+r"(address_a));
  }

  // Multiplies a tile over its range of k. `next` is its first stage, and is advanced past the tile. All stages except
  // the last one are released. Returns the last stage, for finish().
  __device__ __forceinline__ int multiply(const Sm90WorkTile& t, PipelineState<Traits::kStages>& next,
                                          Sm90Accumulators<Traits>& acc) {
    int previous = 0, sum_begin = t.k_begin;
    if constexpr (Traits::kPromote) acc.clear_promoted();
#pragma unroll 1
    for (int i = t.k_begin; i < t.k_end; ++i) {
      mbarrier_wait_parity(ring.full(next.stage), next.parity);
      if constexpr (Traits::kTransposeB) mbarrier_wait_parity(ring.transposed(next.stage), next.parity);
      multiply_stage(next.stage, previous, i > t.k_begin, i > sum_begin, acc);
      previous = next.stage;
      next.advance();
      if constexpr (Traits::kPromote)
        if (i + 1 - sum_begin == kSm90PromoteBlocks || i + 1 == t.k_end) {
          wgmma_wait_group<0>();
          acc.promote();
          sum_begin = i + 1;
        }
    }
    return previous;
  }

  // Waits for the last stage of a tile, and releases it. acc.sums then has the sums of the tile.
  __device__ __forceinline__ void finish(int last_stage, Sm90Accumulators<Traits>& acc) const {
    wgmma_wait_group<0>();
    ring.release(last_stage);
    acc.fence();
    if constexpr (Traits::kPromote) acc.take_promoted();
  }

 private:
  // Starts to multiply a stage. If `pending`, `previous` may still be in use, and is released when it is done. If not
  // `accumulate`, the products replace the sums.
  __device__ __forceinline__ void multiply_stage(int stage, int previous, bool pending, bool accumulate,
                                                 Sm90Accumulators<Traits>& acc) {
    const uint32_t at_a = stage * Traits::kStageBytes + offset_a;
    const uint64_t a = sm90_matrix(ring.data_address + at_a, kAAlongRows, Traits::kK);
    const uint64_t b = sm90_matrix(first_b + stage * Traits::kStageBytes, kBAlongRows, Traits::kK);
    // If a is read into registers, one half of the stage is read while the other half is multiplied.
    constexpr int kHalves = kTransposeA ? 2 : 1, kSteps = 4 / kHalves;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if constexpr (kTransposeA)
#pragma unroll
        for (int s = half * kSteps; s < (half + 1) * kSteps; ++s)
          sm90_load_transposed(address_a + stage * Traits::kStageBytes, s, a_values[s]);
      acc.fence();
      wgmma_fence();
#pragma unroll
      for (int s = half * kSteps; s < (half + 1) * kSteps; ++s)
#pragma unroll
        for (int j = 0; j < kBlocksM; ++j) {
          if constexpr (kTransposeA)
            Wgmma<T, Traits::kTileN>::run(acc.sums[j], a_values[s][j], b + s * kStepB, accumulate || s > 0);
          else
            Wgmma<T, Traits::kTileN>::template run<kAAlongRows, kBAlongRows>(
                acc.sums[j], a + s * kStepA + j * (64 * 128 >> 4), b + s * kStepB, accumulate || s > 0);
        }
      wgmma_commit_group();
      if (half > 0 || pending) wgmma_wait_group<1>();
      if (half == 0 && pending) ring.release(previous);
    }
  }
};

// A reduce-scatter over the kSplit blocks of a cluster. Each block adds up its share of the columns, in the order of
// the blocks, into the first elements of `sums`. `memory` is the memory of the stages, no longer in use.
template <int kSplit, int kThreads, int kBlocksM, int kCount>
__device__ __forceinline__ void sm90_reduce_over_cluster(float (&sums)[kBlocksM][kCount], char* memory) {
  // kQuads: float4 values that a thread receives from each block
  constexpr int kShare = kCount / kSplit, kQuads = kBlocksM * kShare / 4;
  const uint32_t from = cluster_ctarank() * kQuads * kThreads + threadIdx.x - 128;
  cluster_sync();  // no block reads its operands any more
#pragma unroll
  for (int block = 0; block < kSplit; ++block) {
    const uint32_t to = mapa(cvta_to_shared(memory) + from * 16, uint32_t(block));
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float* v = sums[q / (kShare / 4)] + block * kShare + q % (kShare / 4) * 4;
      st_cluster(to + q * kThreads * 16, v[0], v[1], v[2], v[3]);
    }
  }
  cluster_sync();
  const float4* const received = reinterpret_cast<const float4*>(memory) + (threadIdx.x - 128);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    float4 sum = received[q * kThreads];
#pragma unroll
    for (int block = 1; block < kSplit; ++block) {
      const float4 v = received[(block * kQuads + q) * kThreads];
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
    float* to = sums[q / (kShare / 4)] + q % (kShare / 4) * 4;
    to[0] = sum.x;
    to[1] = sum.y;
    to[2] = sum.z;
    to[3] = sum.w;
  }
}

}  // namespace minidnn
