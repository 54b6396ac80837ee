// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions with TMA and wgmma (sm_90a):
// y = epilogue(sum over k of a[m, k] b[n, k]), see view.h.
// Grid: persistent blocks.
// Block: a producer warpgroup and two or three consumer warpgroups. One producer thread issues TMA loads of tiles of
// both operands into a ring of stages in shared memory. The consumer warpgroups multiply with wgmma, hold the sums in
// registers and store through GemmEpilogue. With kPingPong, each of two consumer warpgroups has its own tiles; one
// stores while the other multiplies. Otherwise they share the rows of one tile.
// Cluster: kCluster blocks compute tiles that follow one another along m. They share the tile of b: each block loads a
// slice of it and multicasts the slice to all. A cluster of kSplit blocks computes one tile, each block over its slice
// of k. At the end, each block adds up its slice of the columns, which the others store to its shared memory.
// Shared memory: kStages * 128 * (kTileM + kTileN) bytes + 1 KB to align, then that of the epilogue.
// Numerics: tensor cores truncate the bits of an addend that are below the last bit of the sum. With kPromote, each
// wgmma sum therefore covers only a few k, and float32 additions add up these sums.
//
// A stage holds 128 bytes of k (kK elements) for kTileM rows of a and kTileN rows of b, in 128-byte swizzle. If an
// operand is contiguous along k, a line of 128 bytes holds the k of one row. If it is contiguous along its rows
// (neighbouring rows are neighbours in memory), each kK rows take kK consecutive lines, one for each k, of 128 bytes of
// rows.
//
// wgmma reads TF32 from shared memory only if it is contiguous along k. If a is contiguous along its rows, the consumer
// warpgroups read it into registers, in an order without bank conflicts. If only b is, tensor_maps.cpp exchanges a and
// b. If both are, the producer warpgroup's idle warps transpose b in place.
#pragma once
#include "cuda/device/cluster.cuh"
#include "cuda/device/grid.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"
#include "cuda/gemm/sm90/sm90_params.h"

namespace minidnn {

// Named barriers between the two consumer warpgroups: hand_over() arrives and does not wait; take_over() waits for it.
__device__ __forceinline__ void hand_over(int barrier) { named_barrier_arrive(barrier, 256); }
__device__ __forceinline__ void take_over(int barrier) { named_barrier_sync(barrier, 256); }

// An output tile and the slice of k to sum over.
struct Sm90Tile {
  int phase, batch, split, m, n;  // m and n count tiles
  int k_begin, k_end;             // blocks of k, counted over all taps
};

template <int kCluster, int kSplit>
__device__ __forceinline__ Sm90Tile sm90_tile(const Sm90Problem& p, int index) {
  Sm90Tile t;
  int matrix = int(p.per_matrix.quotient(uint32_t(index)));
  index -= matrix * int(p.per_matrix.divisor);
  int rest = int(p.splits.quotient(uint32_t(matrix)));
  t.split = kSplit > 1 ? int(cluster_ctarank()) : matrix - rest * int(p.splits.divisor);
  matrix = rest;
  t.phase = int(p.batches.quotient(uint32_t(matrix)));
  t.batch = matrix - t.phase * int(p.batches.divisor);
  const int group = int(p.per_group.quotient(uint32_t(index))), first = group * int(p.group_m.divisor);
  index -= group * int(p.per_group.divisor);
  const FastDivmod& rows = p.m_tiles - first < int(p.group_m.divisor) ? p.last_group_m : p.group_m;
  t.n = int(rows.quotient(uint32_t(index)));
  t.m = (first + index - t.n * int(rows.divisor)) * kCluster + int(kCluster > 1 ? cluster_ctarank() : 0);
  if (kSplit == 1 && p.splits.divisor == 1) {
    t.k_begin = 0;
    t.k_end = p.phases[t.phase].blocks;
  } else {
    t.k_begin = t.split * p.k_each + min_of(t.split, p.k_more);
    t.k_end = t.k_begin + p.k_each + (t.split < p.k_more);
  }
  return t;
}

// Splits the index of a pixel or a tap into three digits; `rest` is the remaining quotient.
__device__ __forceinline__ void sm90_digits(const FastDivmod (&size)[3], uint32_t index, int& rest, int (&at)[3]) {
#pragma unroll
  for (int j = 2; j >= 0; --j) {
    const uint32_t next = size[j].quotient(index);
    at[j] = int(index - next * size[j].divisor);
    index = next;
  }
  rest = int(index);
}

// The position along k of one stage.
struct Sm90Step {
  int tap[3], block, channel;
};

template <int kSpatial>
__device__ __forceinline__ void sm90_pixels(uint32_t to, const TensorMap* map, uint32_t barrier, uint16_t blocks,
                                            const Sm90Operand& o, const int32_t (&first_offset)[3], int channel,
                                            int image, const int (&position)[3], const int (&tap)[3]) {
  int at[kSpatial], offset[kSpatial];
#pragma unroll
  for (int j = 0; j < kSpatial; ++j) {
    const int d = j + 3 - kSpatial;
    at[j] = o.corner[d] + position[d] * o.position_step[d];
    offset[j] = first_offset[d] + tap[d] * o.offset_step[d];
  }
  tma_load_im2col(to, map, barrier, blocks, channel, at, image, offset, o.policy);
}

// Loads kRows rows of an operand, from first_row on. If kShare > 1, loads only this block's 1 / kShare of them, for all
// blocks of the cluster.
template <class T, Sm90Source kSource, int kRows, int kShare, int kSpatial> struct Sm90Loader {
  static constexpr int kK = 128 / sizeof(T);
  static constexpr bool kAlongRows = kSource == Sm90Source::tile_along_rows || kSource == Sm90Source::pixels_along_rows;
  static constexpr uint16_t kBlocks = kShare > 1 ? (1 << kShare) - 1 : 0;
  static constexpr int kPart = kRows / kShare;  // rows that this block loads

  const TensorMap* map;
  const Sm90Problem& p;
  const Sm90Operand& o;
  const int32_t (&first_tap)[2], (&first_offset)[3];
  int row, batch, part;
  int image, position[3];                                           // pixels_along_k: of the first row
  int chunk_channel[kPart / kK + 1], chunk_tap[kPart / kK + 1][3];  // pixels_along_rows: of each chunk of kK rows

  __device__ Sm90Loader(const TensorMap* m, const Sm90Problem& problem, const Sm90Operand& operand,
                        const int32_t (&tap)[2], const int32_t (&offset)[3], int first_row, int b)
      : map(m),
        p(problem),
        o(operand),
        first_tap(tap),
        first_offset(offset),
        row(first_row + (kShare > 1 ? int(cluster_ctarank()) * kPart : 0)),
        batch(b),
        part(kShare > 1 ? int(cluster_ctarank()) * kPart : 0) {
    if constexpr (kSource == Sm90Source::pixels_along_k) sm90_digits(p.positions, uint32_t(row), image, position);
    if constexpr (kSource == Sm90Source::pixels_along_rows)
#pragma unroll
      for (int i = 0; i < kPart / kK; ++i) {
        uint32_t chunk = uint32_t(row) / kK + i, t = p.channel_blocks.quotient(chunk);
        chunk_channel[i] = int(chunk - t * p.channel_blocks.divisor) * kK + batch * o.channels_of_batch;
        int beyond;
        sm90_digits(p.window, t, beyond, chunk_tap[i]);
        if (beyond) chunk_channel[i] = 1 << 30;  // past the last tap: out of bounds, so TMA writes zeros
      }
  }

  // `stage` is the address of this operand in a stage.
  __device__ __forceinline__ void load(uint32_t stage, uint32_t barrier, const Sm90Step& k) const {
    const int inner_tap = first_tap[0] + k.tap[2] * o.tap_step[2];
    const int outer_tap = first_tap[1] + k.tap[0] * o.tap_step[0] + k.tap[1] * o.tap_step[1];
    if constexpr (kSource == Sm90Source::tile_along_k) {
      const int at[5] = {k.channel, inner_tap, outer_tap, row, batch * o.batch_step};
      tma_load(stage + part * 128, map, barrier, kBlocks, at, o.policy);
    } else if constexpr (kSource == Sm90Source::tile_along_rows) {
#pragma unroll
      for (int i = 0; i < kPart / kK; ++i) {
        const int at[5] = {row + i * kK, inner_tap, outer_tap, k.channel, batch * o.batch_step};
        tma_load(stage + (part / kK + i) * 128 * kK, map, barrier, kBlocks, at, o.policy);
      }
    } else if constexpr (kSource == Sm90Source::pixels_along_k) {
      sm90_pixels<kSpatial>(stage + part * 128, map, barrier, kBlocks, o, first_offset,
                            k.channel + batch * o.channels_of_batch, image, position, k.tap);
    } else {
      int first_image, first[3];
      sm90_digits(p.positions, uint32_t(k.channel), first_image, first);
#pragma unroll
      for (int i = 0; i < kPart / kK; ++i)
        sm90_pixels<kSpatial>(stage + (part / kK + i) * 128 * kK, map, barrier, kBlocks, o, first_offset,
                              chunk_channel[i], first_image, first, chunk_tap[i]);
    }
  }
};

// The descriptor of a matrix in a stage, from `address` on. If along_rows, a line of 128 bytes holds 64 rows; the next
// 64 rows follow after k_lines lines.
__device__ __forceinline__ uint64_t sm90_matrix(uint32_t address, bool along_rows, int k_lines) {
  return make_smem_descriptor<true>(address, along_rows ? uint32_t(k_lines) * 128 : 16, 1024);
}

// Transposes 32 lines (k) of 32 floats (rows) into 32 rows of 32 k, in place. Both are swizzled. One warp calls this.
__device__ __forceinline__ void sm90_transpose(char* chunk) {
  const uint32_t lane = threadIdx.x % 32;
  float v[32];
#pragma unroll
  for (uint32_t k = 0; k < 32; ++k)
    v[k] = *reinterpret_cast<const float*>(chunk + k * 128 + ((lane / 4 ^ k % 8) * 16 + lane % 4 * 4));
  __syncwarp();
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j)
    *reinterpret_cast<float4*>(chunk + lane * 128 + (j ^ lane % 8) * 16) =
        make_float4(v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3]);
}

// A lane reads 2 * kBlocks neighbouring rows of a: two rows for each of kBlocks wgmma blocks of 64 rows. Returns the
// first one, counted within its warpgroup's rows. Lanes that are served together read four k of two groups of four
// rows, or of four groups of two rows, without bank conflicts.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_row() {
  const uint32_t warp = threadIdx.x / 32 % 4, group = threadIdx.x % 32 / 4;
  if constexpr (kBlocks == 2) return warp * 32 + group % 2 * 16 + group / 2 * 4;
  else return warp / 2 * 32 + group % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group / 2 % 2 * 2;
}
// The byte offset of these rows at the lane's first k. The layout is swizzled: 32 lines (k) of 128 bytes of rows for
// each 32 rows.
template <int kBlocks> __device__ __forceinline__ uint32_t sm90_transposed_offset() {
  const uint32_t row = sm90_transposed_row<kBlocks>(), k = threadIdx.x % 4;
  return row / 32 * 4096 + k * 128 + (row % 32 / 4 ^ k) * 16 + row % 4 * 4;
}
// Loads eight k of these rows as the register operand of wgmma. Takes an address, because the compiler computes
// pointers again for each access.
template <int kBlocks> __device__ __forceinline__ void sm90_load_transposed(uint32_t place, int step,
                                                                            uint32_t (&a)[kBlocks][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t from = (half ? (place ^ 64) + 4 * 128 : place) + uint32_t(step) * 8 * 128;
    if constexpr (kBlocks == 2)
      ld_shared_unordered(from, a[0][2 * half], a[0][2 * half + 1], a[1][2 * half], a[1][2 * half + 1]);
    else ld_shared_unordered(from, a[0][2 * half], a[0][2 * half + 1]);
  }
}

// Reduce-scatter over the cluster: adds the sums of kSplit blocks, kThreads threads each, in the order of the blocks.
// Each block adds up its slice of the columns and leaves the result in the first elements of `sums`. `memory` is free
// by now and can hold the sums of one block.
template <int kSplit, int kThreads, int kBlocksM, int kCount>
__device__ __forceinline__ void sm90_add(float (&sums)[kBlocksM][kCount], char* memory) {
  // float4s that a thread receives from each block
  constexpr int kShare = kCount / kSplit, kQuads = kBlocksM * kShare / 4;
  const uint32_t from = cluster_ctarank() * kQuads * kThreads + threadIdx.x - 128;
  cluster_sync();  // all blocks have finished reading their stages
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
  const float4* const parts = reinterpret_cast<const float4*>(memory) + (threadIdx.x - 128);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    float4 sum = parts[q * kThreads];
#pragma unroll
    for (int block = 1; block < kSplit; ++block) {
      const float4 v = parts[(block * kQuads + q) * kThreads];
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

// Blocks of k in one wgmma sum with kPromote. Truncation stays small: 2^-25 of the sum at each step of eight k.
constexpr int kSm90PromoteBlocks = 8;

template <class T, class Y, int kTileM, int kTileN, int kStages, bool kPingPong, int kCluster, int kSplit,
          bool kPromote, Sm90Source kSourceA, Sm90Source kSourceB, int kSpatial, Activation kActivation, bool kBias,
          bool kC, GemmStore kStore>
__global__ void __launch_bounds__(128 + 128 * sm90_warpgroups(kTileM), 1)
    gemm_sm90(const __grid_constant__ Sm90Problem p, const __grid_constant__ GemmArgs args) {
  constexpr int kK = 128 / sizeof(T), kBytesA = kTileM * 128, kBytesB = kTileN * 128, kStageBytes = kBytesA + kBytesB;
  constexpr int kWarpgroups = sm90_warpgroups(kTileM), kRows = kPingPong ? kTileM : kTileM / kWarpgroups;
  constexpr int kBlocksM = kRows / 64;
  using LoaderA = Sm90Loader<T, kSourceA, kTileM, 1, kSpatial>;
  using LoaderB = Sm90Loader<T, kSourceB, kTileN, kCluster, kSpatial>;
  constexpr bool kTransposeA = LoaderA::kAlongRows && sizeof(T) == 4,
                 kTransposeB = LoaderB::kAlongRows && sizeof(T) == 4;
  static_assert(
      kBlocksM * 64 == kRows &&
      (kTransposeA ? kStore != GemmStore::summed : kStore != GemmStore::columns && kStore != GemmStore::phases) &&
      (kCluster == 1 || kSplit == 1));

  extern __shared__ char shared[];
  __shared__ uint64_t barriers[(kTransposeB ? 3 : 2) * kStages];
  const uint32_t stages = (cvta_to_shared(shared) + 1023) & ~1023u;
  char* const stages_there = shared + (stages - cvta_to_shared(shared));
  const uint32_t full = cvta_to_shared(barriers), empty = full + 8 * kStages, turned = empty + 8 * kStages;
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      // Each warp that reads this stage arrives, in all blocks of the cluster, because this block multicasts b to all
      // of them.
      mbarrier_init(empty + 8 * i, kCluster * 4 * (kPingPong ? 1 : kWarpgroups));
      if (kTransposeB) mbarrier_init(turned + 8 * i, kTileN / kK);
    }
    fence_mbarrier_init();
    prefetch_tensormap(&p.map_a);
    prefetch_tensormap(&p.map_b);
  }
  if constexpr (kCluster > 1) cluster_sync();
  else __syncthreads();
  griddep_wait();

  // A block takes tiles forth and back: first, 2 step - 1 - first, 2 step + first and so on. The phases of
  // backward_data are sorted with their longest tiles first.
  constexpr int kTogether = kCluster * kSplit;
  const int first = int(blockIdx.x) / kTogether, step = int(gridDim.x) / kTogether;
  const int forth = 2 * (step - first) - 1;  // distance to the next tile; alternates with 2 * step - forth
  int stage = 0;
  uint32_t parity = 0;
  auto next = [&] {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  auto skip = [&](int blocks) {
    const int rounds = (stage + blocks) / kStages;
    stage += blocks - rounds * kStages;
    parity ^= rounds & 1;
  };

  if (group == 0) {
    // From 168 registers a thread (384 threads), or from 128 (512 threads).
    setmaxnreg_dec<kTransposeB ? 64 : 40>();
    if (threadIdx.x == 0) {
      for (int index = first, by = forth; index < p.tiles; index += by, by = 2 * step - by) {
        const Sm90Tile t = sm90_tile<kCluster, kSplit>(p, index);
        const Sm90Phase& phase = p.phases[t.phase];
        const LoaderA a(&p.map_a, p, p.a, phase.a_tap, phase.a_offset, t.m * kTileM, t.batch);
        const LoaderB b(&p.map_b, p, p.b, phase.b_tap, phase.b_offset, t.n * kTileN, t.batch);
        Sm90Step k;
        // k is split only if there is one phase, and the taps of that phase are those of the window.
        const uint32_t tap = p.k_blocks.quotient(uint32_t(t.k_begin));
        k.block = t.k_begin - int(tap * p.k_blocks.divisor);
        int none;
        sm90_digits(p.window, tap, none, k.tap);
#pragma unroll 1
        for (int i = t.k_begin; i < t.k_end; ++i, next()) {
          k.channel = k.block * kK + phase.k_shift;
          mbarrier_wait_parity(empty + 8 * stage, parity ^ 1);
          mbarrier_arrive_expect_tx(full + 8 * stage, kStageBytes);
          a.load(stages + stage * kStageBytes, full + 8 * stage, k);
          b.load(stages + stage * kStageBytes + kBytesA, full + 8 * stage, k);
          if (++k.block == int(p.k_blocks.divisor)) {
            k.block = 0;
            for (int j = 2; j >= 0; --j) {
              if (++k.tap[j] < phase.taps[j]) break;
              k.tap[j] = 0;
            }
          }
        }
      }
      griddep_launch_dependents();
    } else if (kTransposeB && threadIdx.x >= 32) {
      // Each of the three warps transposes every third chunk of the ring, and the same chunks in each pass over the
      // ring.
      constexpr int kChunks = kTileN / kK;
      const int warp = int(threadIdx.x) / 32 - 1;
      for (int index = first, by = forth; index < p.tiles; index += by, by = 2 * step - by) {
        const Sm90Tile t = sm90_tile<kCluster, kSplit>(p, index);
#pragma unroll 1
        for (int i = t.k_begin; i < t.k_end; ++i, next()) {
          mbarrier_wait_parity(full + 8 * stage, parity);
#pragma unroll 1
          for (int chunk = (warp + stage * (3 - kChunks % 3)) % 3; chunk < kChunks; chunk += 3) {
            sm90_transpose(stages_there + stage * kStageBytes + kBytesA + chunk * (kK * 128));
            fence_proxy_async();
            __syncwarp();
            if (threadIdx.x % 32 == 0) mbarrier_arrive(turned + 8 * stage);
          }
        }
      }
    }
  } else {
    setmaxnreg_inc<kWarpgroups == 3 ? kTransposeB ? 144 : 152 : kTransposeB ? 216 : 232>();
    const int mine = group - 1, warp = int(threadIdx.x) / 32 % 4, lane = int(threadIdx.x) % 32;
    int turn = 0;
    // A barrier's parity distinguishes only two neighbouring phases. A warpgroup may therefore wait for stages only
    // after the other one has taken all stages of its tile. Named barriers 1 and 2 pass the ring between them.
    if (kPingPong && mine == 1) hand_over(1);
    float sums[kBlocksM][kTileN / 2];
    float all_sums[kPromote ? kBlocksM : 1][kPromote ? kTileN / 2 : 1];
    uint32_t place =
        kTransposeA ? stages + (kPingPong ? 0 : mine * kRows * 128) + sm90_transposed_offset<kBlocksM>() : 0;
    asm volatile("" : "+r"(place));  // keeps it in a register: not computed again for each block of k
    uint32_t a_values[kTransposeA ? 4 : 1][kBlocksM][4];
    auto release = [&](int s) {
      if (threadIdx.x % 32 < kCluster) {
        if constexpr (kCluster > 1) mbarrier_arrive_cluster(empty + 8 * s, threadIdx.x % 32);
        else mbarrier_arrive(empty + 8 * s);
      }
    };
    for (int index = first, by = forth; index < p.tiles; index += by, by = 2 * step - by, turn ^= 1) {
      if (kPingPong && turn != mine && p.k_of_tile) {
        skip(p.k_of_tile);
        continue;
      }
      const Sm90Tile t = sm90_tile<kCluster, kSplit>(p, index);
      if (kPingPong && turn != mine) {
        skip(t.k_end - t.k_begin);
        continue;
      }
      if (kPingPong) take_over(1 + mine);
      int before = 0, sum_begin = t.k_begin;
      if constexpr (kPromote)
#pragma unroll
        for (auto& row : all_sums)
#pragma unroll
          for (float& v : row) v = 0;
#pragma unroll 1
      for (int i = t.k_begin; i < t.k_end; ++i) {
        mbarrier_wait_parity(full + 8 * stage, parity);
        if constexpr (kTransposeB) mbarrier_wait_parity(turned + 8 * stage, parity);
        const uint32_t at_a = stage * kStageBytes + (kPingPong ? 0 : mine * kRows * 128),
                       at_b = stage * kStageBytes + kBytesA;
        const uint64_t a = sm90_matrix(stages + at_a, LoaderA::kAlongRows, kK),
                       b = sm90_matrix(stages + at_b, LoaderB::kAlongRows && !kTransposeB, kK);
        // A step of 32 bytes along k is 32 bytes of a row, or kK / 4 lines of 128 bytes.
        constexpr int kStepA = LoaderA::kAlongRows ? kK / 4 * 128 >> 4 : 2,
                      kStepB = LoaderB::kAlongRows && !kTransposeB ? kK / 4 * 128 >> 4 : 2;
        auto multiply = [&](int s, int j) {
          if constexpr (!kTransposeA)
            Wgmma<T, kTileN>::template run<LoaderA::kAlongRows, LoaderB::kAlongRows && !kTransposeB>(
                sums[j], a + s * kStepA + j * (64 * 128 >> 4), b + s * kStepB, i > sum_begin || s > 0);
          else Wgmma<T, kTileN>::run(sums[j], a_values[s][j], b + s * kStepB, i > sum_begin || s > 0);
        };
        // If a is in registers, one half is read while the other half is multiplied.
        constexpr int kHalves = kTransposeA ? 2 : 1;
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          constexpr int kSteps = 4 / kHalves;
          if constexpr (kTransposeA)
#pragma unroll
            for (int s = half * kSteps; s < (half + 1) * kSteps; ++s)
              sm90_load_transposed(place + stage * kStageBytes, s, a_values[s]);
#pragma unroll
          for (int j = 0; j < kBlocksM; ++j) warpgroup_fence_operand(sums[j]);
          wgmma_fence();
#pragma unroll
          for (int s = half * kSteps; s < (half + 1) * kSteps; ++s)
#pragma unroll
            for (int j = 0; j < kBlocksM; ++j) multiply(s, j);
          wgmma_commit_group();
          if (half > 0 || i > t.k_begin) wgmma_wait_group<1>();
          if (half == 0 && i > t.k_begin) release(before);
        }
        before = stage;
        next();
        if constexpr (kPromote)
          if (i + 1 - sum_begin == kSm90PromoteBlocks || i + 1 == t.k_end) {
            wgmma_wait_group<0>();
#pragma unroll
            for (int j = 0; j < kBlocksM; ++j) {
              warpgroup_fence_operand(sums[j]);
#pragma unroll
              for (int e = 0; e < kTileN / 2; ++e) all_sums[j][e] += sums[j][e];
            }
            sum_begin = i + 1;
          }
      }
      if (kPingPong) hand_over(2 - mine);
      wgmma_wait_group<0>();
      release(before);
#pragma unroll
      for (int j = 0; j < kBlocksM; ++j) warpgroup_fence_operand(sums[j]);
      if constexpr (kPromote)
#pragma unroll
        for (int j = 0; j < kBlocksM; ++j)
#pragma unroll
          for (int e = 0; e < kTileN / 2; ++e) sums[j][e] = all_sums[j][e];
      GemmArgs to = args;
      to.y = static_cast<Y*>(args.y) + t.split * p.split_stride;
      const uint32_t lines = stages + kStages * kStageBytes + uint32_t(mine * 4 + warp) * kLinesBytes;
      const GemmEpilogue<T, Y, kActivation, kBias, kC, kStore> epilogue(p.y, p.phases[t.phase].part, to,
                                                                        uint32_t(t.batch), lines);
      constexpr int kSums = kTileN / 2 / kSplit;  // of each block of 64 rows that this thread stores
      const uint32_t m = uint32_t(t.m * kTileM + (kPingPong ? 0 : mine * kRows));
      uint32_t n = uint32_t(t.n * kTileN);
      if constexpr (kSplit > 1) {
        sm90_add<kSplit, kPingPong ? 128 : 128 * kWarpgroups>(sums, stages_there);
        n += cluster_ctarank() * (kTileN / kSplit);
      }
      const uint32_t row = m + (kTransposeA ? sm90_transposed_row<kBlocksM>() : warp * 16 + lane / 4);
      if constexpr (kStore == GemmStore::columns) {
        epilogue.template store_columns<kSums>(sums, row, n);
      } else if constexpr (kStore == GemmStore::phases) {
        epilogue.store_phases(sums, row, n);
      } else if constexpr (kStore == GemmStore::summed) {
        epilogue.template store_summed<kSums>(sums, row, n, kPingPong ? t.m : t.m * kWarpgroups + mine);
      } else {
#pragma unroll
        for (int j = 0; j < kBlocksM; ++j)
          epilogue.store(reinterpret_cast<float(&)[kSums]>(sums[j]), row + j * (kTransposeA ? 2 : 64),
                         row + j * (kTransposeA ? 2 : 64) + (kTransposeA ? 1 : 8), n);
      }
    }
  }
  // A cluster that splits k has one tile. Warpgroups without sums of it join the two cluster barriers of sm90_add().
  if (kSplit > 1 && (group == 0 || (kPingPong && group == 2))) {
    cluster_sync();
    cluster_sync();
  }
  if constexpr (kCluster > 1) cluster_sync();  // a block must not exit while others arrive at its barriers
}

}  // namespace minidnn
