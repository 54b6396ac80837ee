// SPDX-License-Identifier: Apache-2.0
// gemm_sm90: matrix products and convolutions with TMA and wgmma (sm_90a):
//   y = epilogue(sum over k of a[m, k] b[n, k]), see view.h.
// Grid: persistent blocks. TileScheduler lists the tiles that a block computes.
// Block: a producer warpgroup (producer.cuh) and two or three consumer warpgroups (consumer.cuh). One thread of the
// producer loads tiles of both operands by TMA into a ring of stages in shared memory (pipeline.cuh). The consumers
// multiply with wgmma, keep the sums in registers and store them through GemmEpilogue. If kPingPong, two consumers
// compute different tiles: one consumer stores its tile while the other consumer multiplies. If not, the consumers
// divide the rows of each tile.
// Cluster: if kCluster > 1, the blocks of a cluster compute neighbouring tiles along m, which need the same rows of b.
// Each block loads a share of these rows and multicasts them to all blocks of the cluster. If kSplit > 1, the blocks of
// a cluster compute the same tile, each over its share of k. At the end, they exchange their sums through shared
// memory, and each block adds up and stores a share of the columns.
// Shared memory: kStages * 128 * (kTileM + kTileN) bytes, 1 KB for alignment, and the buffers of the epilogue.
// Bytes: each tile reads kTileM rows of a and kTileN / kCluster rows of b, mostly from the L2. y is written once.
// Numerics: tensor cores truncate when they add to a sum. If kPromote, wgmma therefore adds up only a few blocks of k
// at a time, and float32 additions, which round, add up the sums of wgmma.
//
// A stage has 128 bytes along k (kK elements) for kTileM rows of a and kTileN rows of b, in 128-byte swizzle. If an
// operand is contiguous along k, a line of 128 bytes is all k of one row. If an operand is contiguous along its rows
// (neighbouring rows are neighbours in memory), a line of 128 bytes is kK neighbouring rows at one k.
//
// wgmma reads TF32 operands from shared memory only if they are contiguous along k. If a is contiguous along its rows,
// the consumers read a into registers, in an order without bank conflicts. If only b is contiguous along its rows,
// tensor_maps.cpp may exchange a and b. If it does not, idle warps of the producer transpose b in shared memory.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"
#include "cuda/gemm/epilogue/store_boxes.cuh"
#include "cuda/gemm/sm90/consumer.cuh"
#include "cuda/gemm/sm90/producer.cuh"

namespace minidnn {

// The first column of a tile whose sums this block stores. If kSplit > 1, each block of the cluster stores a share of
// the columns.
template <class Traits> __device__ __forceinline__ uint32_t sm90_first_column(const Sm90WorkTile& t) {
  const uint32_t n = uint32_t(t.n * Traits::kTileN);
  if constexpr (Traits::kSplit > 1) return n + cluster_ctarank() * (Traits::kTileN / Traits::kSplit);
  else return n;
}

// Stores the sums of a tile. If kSplit > 1, the blocks of the cluster first exchange their sums through the memory of
// the stages, no longer in use.
template <class Traits, class Y, GemmStore kStore, class Epilogue>
__device__ __forceinline__ void sm90_store_tile(const Sm90Problem& p, const GemmArgs& args, const Sm90WorkTile& t,
                                                const Sm90Pipeline<Traits>& ring, int warpgroup,
                                                const typename Epilogue::template TileBias<Traits::kSums>& bias,
                                                float (&sums)[Traits::kBlocksM][Traits::kTileN / 2]) {
  const int warp = int(threadIdx.x) / 32 % 4, lane = int(threadIdx.x) % 32;
  GemmArgs to = args;
  to.y = static_cast<Y*>(args.y) + t.split * p.split_stride;
  const uint32_t lines =
      ring.data_address + Traits::kStages * Traits::kStageBytes + uint32_t(warpgroup * 4 + warp) * kLinesBytes;
  const Epilogue epilogue(p.y, p.phases[t.phase].bounds, to, uint32_t(t.batch), lines);
  constexpr int kSums = Traits::kSums;
  const uint32_t m = uint32_t(t.m * Traits::kTileM + (Traits::kPingPong ? 0 : warpgroup * Traits::kRows));
  const uint32_t n = sm90_first_column<Traits>(t);
  if constexpr (Traits::kSplit > 1)
    sm90_reduce_over_cluster<Traits::kSplit, Traits::kPingPong ? 128 : 128 * Traits::kWarpgroups>(sums, ring.data);
  constexpr bool kTransposeA = Traits::kTransposeA;
  const uint32_t row = m + (kTransposeA ? sm90_transposed_row<Traits::kBlocksM>() : warp * 16 + lane / 4);
  if constexpr (kStore == GemmStore::columns) {
    gemm_store_columns<kSums>(epilogue, sums, row, n);
  } else if constexpr (kStore == GemmStore::phases) {
    gemm_store_phases(epilogue, sums, row, n);
  } else if constexpr (kStore == GemmStore::summed) {
    gemm_store_summed<kSums>(epilogue, sums, row, n, bias,
                             Traits::kPingPong ? t.m : t.m * Traits::kWarpgroups + warpgroup);
  } else if constexpr (kStore == GemmStore::boxes) {
#pragma unroll
    for (int j = 0; j < Traits::kBlocksM; ++j)
      gemm_store_boxes(epilogue, &p.map_y, reinterpret_cast<float(&)[kSums]>(sums[j]), m + 64 * j + warp * 16, n,
                       uint32_t(t.batch), bias);
  } else {
#pragma unroll
    for (int j = 0; j < Traits::kBlocksM; ++j)
      epilogue.store(reinterpret_cast<float(&)[kSums]>(sums[j]), row + j * (kTransposeA ? 2 : 64),
                     row + j * (kTransposeA ? 2 : 64) + (kTransposeA ? 1 : 8), n, bias);
  }
}

template <class T, class Y, int kTileM, int kTileN, int kStages, bool kPingPong, int kCluster, int kSplit,
          bool kPromote, Sm90Source kSourceA, Sm90Source kSourceB, int kSpatial, Activation kActivation, bool kBias,
          bool kC, GemmStore kStore>
__global__ void __launch_bounds__(128 + 128 * sm90_warpgroups(kTileM), 1)
    gemm_sm90(const __grid_constant__ Sm90Problem p, const __grid_constant__ GemmArgs args) {
  using Traits =
      Sm90Traits<T, kTileM, kTileN, kStages, kPingPong, kCluster, kSplit, kPromote, kSourceA, kSourceB, kSpatial>;
  // Products of TF32 that are not promoted have larger errors than the short formulas of activations.
  constexpr Formula kFormula = sizeof(Y) == 2 || (sizeof(T) == 4 && !kPromote) ? Formula::fast_ftz : Formula::accurate;
  using Epilogue = GemmEpilogue<T, Y, kActivation, kBias, kC, kStore, kFormula>;
  constexpr int kWarpgroups = Traits::kWarpgroups;
  constexpr bool kTransposeA = Traits::kTransposeA, kTransposeB = Traits::kTransposeB;
  static_assert(Traits::kBlocksM * 64 == Traits::kRows &&
                (kTransposeA ? kStore != GemmStore::summed && kStore != GemmStore::boxes
                             : kStore != GemmStore::columns && kStore != GemmStore::phases) &&
                (kCluster == 1 || kSplit == 1));

  extern __shared__ char shared[];
  __shared__ uint64_t barriers[Sm90Pipeline<Traits>::kBarriers];
  const Sm90Pipeline<Traits> ring(shared, barriers);
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);

  if (threadIdx.x == 0) {
    ring.init_barriers();
    prefetch_tensormap(&p.map_a);
    prefetch_tensormap(&p.map_b);
    if (kStore == GemmStore::boxes) prefetch_tensormap(&p.map_y);
  }
  if constexpr (kCluster > 1) cluster_sync();
  else __syncthreads();
  griddep_wait();

  constexpr int kBlocksOfTile = kCluster * kSplit;
  const TileScheduler scheduler(int(blockIdx.x) / kBlocksOfTile, int(gridDim.x) / kBlocksOfTile);
  if (group == 0) {
    // Threads start with 168 registers (blocks of 384) or 128 registers (blocks of 512).
    setmaxnreg_dec<kTransposeB ? 64 : 40>();
    if (threadIdx.x == 0) {
      sm90_load_tiles(p, ring, scheduler);
      griddep_launch_dependents();
    } else if (kTransposeB && threadIdx.x >= 32) {
      sm90_transpose_tiles(p, ring, scheduler);
    }
  } else {
    setmaxnreg_inc<kWarpgroups == 3 ? kTransposeB ? 144 : 152 : kTransposeB ? 216 : 232>();
    const int warpgroup = group - 1;
    int owner = 0;  // if kPingPong, the consumer warpgroup that computes the tile
    if (kPingPong && warpgroup == 1) sm90_order_arrive(0);
    Sm90Accumulators<Traits> acc;
    Sm90MainLoop<Traits> main_loop(ring, warpgroup);
    PipelineState<kStages> next;
    for (TileScheduler tiles = scheduler; tiles.index < p.tiles; tiles.advance(), owner ^= 1) {
      if (kPingPong && owner != warpgroup && p.k_of_tile) {
        next.advance(p.k_of_tile);
        continue;
      }
      const Sm90WorkTile t = sm90_work_tile<kCluster, kSplit>(p, tiles.index);
      if (kPingPong && owner != warpgroup) {
        next.advance(t.k_end - t.k_begin);
        continue;
      }
      // The bias is loaded now, so that nothing waits for it after the products.
      const auto bias =
          Epilogue::template tile_bias<Traits::kSums>(p.y, args, uint32_t(t.batch), sm90_first_column<Traits>(t));
      if (kPingPong) sm90_order_wait(warpgroup);
      const int last_stage = main_loop.multiply(t, next, acc);
      if (kPingPong) sm90_order_arrive(1 - warpgroup);
      main_loop.finish(last_stage, acc);
      sm90_store_tile<Traits, Y, kStore, Epilogue>(p, args, t, ring, warpgroup, bias, acc.sums);
    }
    if (kStore == GemmStore::boxes) gemm_wait_for_boxes();
  }
  // If kSplit > 1, warpgroups without sums take part in the two cluster barriers of sm90_reduce_over_cluster().
  if (kSplit > 1 && (group == 0 || (kPingPong && group == 2))) {
    cluster_sync();
    cluster_sync();
  }
  // Other blocks of the cluster can still arrive at barriers of this block.
  if constexpr (kCluster > 1) cluster_sync();
}

}  // namespace minidnn
