// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup of sm90/kernel.cu: its main loop over k with wgmma, and the reduction of sums over the blocks of
// a cluster.
#pragma once
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/gemm/sm90/pipeline.cuh"
#include "cuda/gemm/sm90/tf32_transpose.cuh"
#include "cuda/gemm/sm90/tile_scheduler.cuh"

namespace minidnn {

// If kPromote, the number of blocks of k (128 bytes each) after which the sums of wgmma are added to float32 sums. For
// every eight values of k that tensor cores add to a sum, the truncation error is at most 2^-25 of the sum.
constexpr int kSm90PromoteBlocks = 8;

// Returns the wgmma descriptor of the matrix that begins at the shared-memory address `address`. If along_rows, a line
// of 128 bytes is 64 rows at one k, and the next 64 rows begin k_lines lines later. If not, a line of 128 bytes is all
// k of one row.
__device__ __forceinline__ uint64_t sm90_matrix(uint32_t address, bool along_rows, int k_lines) {
  return make_smem_descriptor<true>(address, along_rows ? uint32_t(k_lines) * 128 : 16, 1024);
}

// The sums of one tile in the registers of a warpgroup. `sums` are the accumulators of wgmma.
template <class Traits> struct Sm90Accumulators {
  static constexpr int kBlocksM = Traits::kBlocksM, kCount = Traits::kTileN / 2;
  float sums[kBlocksM][kCount];
  // Float32 sums, used only if kPromote. `sums` are added to them after every few blocks of k (128 bytes each).
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

// The main loop of a consumer warpgroup, which multiplies the operands of a tile. A stage is one buffer of the ring in
// shared memory, and holds 128 bytes along k.
template <class Traits> struct Sm90MainLoop {
  using T = typename Traits::T;
  using LoaderA = typename Traits::LoaderA;
  using LoaderB = typename Traits::LoaderB;
  static constexpr int kBlocksM = Traits::kBlocksM;
  static constexpr bool kTransposeA = Traits::kTransposeA;
  static constexpr bool kAAlongRows = LoaderA::kAlongRows, kBAlongRows = LoaderB::kAlongRows && !Traits::kTransposeB;
  // wgmma multiplies 32 bytes along k at a time. kStepA and kStepB are the distances in shared memory from 32 bytes
  // along k to the next 32 bytes along k, in units of 16 bytes.
  static constexpr int kStepA = kAAlongRows ? Traits::kK / 4 * 128 >> 4 : 2;
  static constexpr int kStepB = kBAlongRows ? Traits::kK / 4 * 128 >> 4 : 2;

  const Sm90Pipeline<Traits>& ring;
  const uint32_t offset_a;  // the offset of this warpgroup's rows of operand a in a stage (buffer), in bytes
  const uint32_t first_b;   // the shared-memory address of operand b in the first buffer of the ring
  uint32_t address_a;       // the address of this lane's rows of operand a in the first buffer, if kTransposeA
  // If kTransposeA: this lane's values of operand a from one stage (buffer of the ring).
  uint32_t a_values[kTransposeA ? 4 : 1][kBlocksM][4];

  __device__ __forceinline__ Sm90MainLoop(const Sm90Pipeline<Traits>& pipeline, int warpgroup)
      : ring(pipeline),
        offset_a(Traits::kPingPong ? 0 : warpgroup * Traits::kRows * 128),
        first_b(pipeline.address_b(0)) {
    address_a = kTransposeA ? ring.data_address + offset_a + sm90_transposed_offset<kBlocksM>() : 0;
    // The asm makes the compiler keep address_a in a register. Without it, the compiler computes address_a again for
    // each buffer of the ring.
    asm volatile("" : "+r"(address_a));
  }

  // Adds up the products of a tile over k. The operands are in stages (buffers in shared memory). `next` is the first
  // stage of the tile; the function advances it to the first stage after the tile. The function releases all stages of
  // the tile except the last one. It returns the last stage, for finish().
  __device__ __forceinline__ int multiply(const Sm90WorkTile& t, Sm90PipelineState<Traits::kStages>& next,
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

  // Waits until the last stage (buffer with operands) of a tile is multiplied, and releases this stage. Afterwards,
  // acc.sums has the sums of the tile.
  __device__ __forceinline__ void finish(int last_stage, Sm90Accumulators<Traits>& acc) const {
    wgmma_wait_group<0>();
    ring.release(last_stage);
    acc.fence();
    if constexpr (Traits::kPromote) acc.take_promoted();
  }

 private:
  // Starts the wgmma instructions that multiply the operands in a stage (a buffer in shared memory). If `pending`, the
  // wgmma instructions of the stage `previous` may still be running; when they are done, `previous` is released. If
  // `accumulate`, the products are added to the sums. If not, they replace the sums.
  __device__ __forceinline__ void multiply_stage(int stage, int previous, bool pending, bool accumulate,
                                                 Sm90Accumulators<Traits>& acc) {
    const uint32_t at_a = stage * Traits::kStageBytes + offset_a;
    const uint64_t a = sm90_matrix(ring.data_address + at_a, kAAlongRows, Traits::kK);
    const uint64_t b = sm90_matrix(first_b + stage * Traits::kStageBytes, kBAlongRows, Traits::kK);
    // If a is read into registers, the 128 bytes along k in a stage (buffer) are divided into two halves: one half is
    // read while the other half is multiplied.
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

// A reduce-scatter over the kSplit blocks of a cluster, with kThreads threads per block. Each block adds up its share
// of the columns, in the order of the blocks, and leaves the results in the first elements of `sums`. `memory` is the
// memory of the ring of stages, which is no longer in use. `memory` is large enough for the sums of one block.
template <int kSplit, int kThreads, int kBlocksM, int kCount>
__device__ __forceinline__ void sm90_reduce_over_cluster(float (&sums)[kBlocksM][kCount], char* memory) {
  // kQuads is the number of float4 values that a thread receives from each block.
  constexpr int kShare = kCount / kSplit, kQuads = kBlocksM * kShare / 4;
  const uint32_t from = cluster_ctarank() * kQuads * kThreads + threadIdx.x - 128;
  cluster_sync();  // after this barrier, no block reads operands in its shared memory any more
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
