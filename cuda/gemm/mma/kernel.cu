// SPDX-License-Identifier: Apache-2.0
// mma_gather: matrix products and convolutions on tensor cores with mma.sync (sm_80 and later), for operands of any
// strides:
//   y = epilogue(sum over k of a[m, k] b[n, k]), see view.h.
// Grid: a block computes one tile of y for one split of k. MmaParams gives the order of blocks.
// Block: the warps divide the tile, and keep sums in registers. All threads copy slices of operands to shared memory
// with cp.async (gather.cuh). A slice is 64 bytes along k for each row of the tile. Shared memory: a ring of slices,
// the offsets of the rows of y, and tables of offsets and bit masks (MmaSharedMemory).
// Bytes: each block reads its rows of a and b once, mostly from the L2. y is written once.
// Shapes are run-time values. The tile, the dtype, and the dimension along which each operand is read by vectors are
// compile-time parameters.
#include "cuda/device/fragment.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/gemm/epilogue/staged.cuh"
#include "cuda/gemm/mma/gather.cuh"

namespace minidnn {

// The tile of a block, and how the warps divide it. kMinBlocks, the intended number of blocks per SM, limits the
// registers.
template <int kTileM, int kTileN, int kWarpsAlongM, int kWarpsAlongN, int kSlices, int kMinBlocks> struct MmaTile {
  static constexpr int kM = kTileM, kN = kTileN, kWarpsN = kWarpsAlongN, kStages = kSlices, kBlocks = kMinBlocks;
  static constexpr int kThreads = 32 * kWarpsAlongM * kWarpsAlongN;
  static constexpr int kWarpM = kTileM / kWarpsAlongM, kWarpN = kTileN / kWarpsAlongN;
};

// What a block computes. m and n are indices of tiles.
struct MmaBlock {
  uint32_t batch, split, m, n;
};
__device__ __forceinline__ MmaBlock mma_block(const MmaParams& p) {
  const uint32_t matrix = p.tiles.quotient(blockIdx.x), tile = blockIdx.x - matrix * p.tiles.divisor;
  const uint32_t split = p.batches.quotient(matrix), group = p.per_group.quotient(tile);
  const uint32_t in_group = tile - group * p.per_group.divisor;
  const uint32_t rows = group < p.groups ? kTilesOfGroup : p.last_rows.divisor;
  const uint32_t n = group < p.groups ? in_group / kTilesOfGroup : p.last_rows.quotient(in_group);
  return {matrix - split * p.batches.divisor, split, group * kTilesOfGroup + in_group - n * rows, n};
}

// A fragment as mma.sync takes it; float32 is rounded to TF32. With kProducts == 3, a float32 is the sum high + low of
// two TF32 numbers, and low is 0 for Inf and NaN. Known limit: Inf * v is NaN if the low part of v is 0 or has the
// opposite sign of v. A check for Inf would take too many registers.
template <class T, int kProducts> struct Factor {
  uint32_t high[4], low[kProducts == 3 ? 4 : 1];

  __device__ __forceinline__ void set(const uint32_t (&f)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = f[i];
      if constexpr (sizeof(T) == 4) {
        const float v = __uint_as_float(f[i]);
        high[i] = cvt_rna_tf32(v);
        if constexpr (kProducts == 3) {
          const bool finite = (high[i] & 0x7f800000) != 0x7f800000;
          low[i] = finite ? cvt_rna_tf32(v - __uint_as_float(high[i])) : 0;
        }
      }
    }
  }
};

// A warp's fragments of a slice. There are two sets (32 bytes along k each): one is loaded while the other is
// multiplied.
template <class Tile, class SliceA, class SliceB> struct Fragments {
  static constexpr int kBlocksM = Tile::kWarpM / 16, kBlocksN = Tile::kWarpN / 16;
  uint32_t a[2][kBlocksM][4], b[2][kBlocksN][4];

  __device__ __forceinline__ void load(uint32_t slice, uint32_t lane_a, uint32_t lane_b, int step) {
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) SliceA::load(a[step % 2][i], slice, lane_a, i, step, false);
#pragma unroll
    for (int j = 0; j < kBlocksN; ++j) SliceB::load(b[step % 2][j], slice + SliceA::kBytes, lane_b, j, step, true);
  }
};

// Adds the products over 32 bytes along k to `sums`.
template <class T, int kProducts, class Sums, class F>
__device__ __forceinline__ void multiply(Sums& sums, const F& f, int step) {
  Factor<T, kProducts> a[F::kBlocksM];
#pragma unroll
  for (int i = 0; i < F::kBlocksM; ++i) a[i].set(f.a[step % 2][i]);
#pragma unroll
  for (int j = 0; j < F::kBlocksN; ++j) {
    Factor<T, kProducts> b;
    b.set(f.b[step % 2][j]);
#pragma unroll
    for (int i = 0; i < F::kBlocksM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = sums.of[i] + 8 * j + 4 * half;
        if constexpr (kProducts == 3) {
          mma_sync<T>(to, a[i].low, b.high[2 * half], b.high[2 * half + 1]);
          mma_sync<T>(to, a[i].high, b.low[2 * half], b.low[2 * half + 1]);
        }
        mma_sync<T>(to, a[i].high, b.high[2 * half], b.high[2 * half + 1]);
      }
  }
}

// The template parameters of mma_gather, and constants and types computed from them.
template <class Element, class BlockTile, int kTf32Products, bool kAAlongK, bool kBAlongK, bool kWide,
          Activation kActivation, Formula kFormula>
struct MmaTraits {
  using T = Element;
  using Tile = BlockTile;
  static constexpr int kProducts = kTf32Products;
  static constexpr bool kWideVectors = kWide;
  using GatherA = Gather<T, Tile::kM, Tile::kThreads, kAAlongK, kWide>;
  using GatherB = Gather<T, Tile::kN, Tile::kThreads, kBAlongK, kWide>;
  using SliceA = typename GatherA::Slice;
  using SliceB = typename GatherB::Slice;
  using Epilogue = StagedEpilogue<T, Tile::kWarpM, Tile::kWarpN, kActivation, kFormula>;
  static constexpr int kK = SliceA::kK, kStageBytes = SliceA::kBytes + SliceB::kBytes;
  static constexpr int kRingBytes = Tile::kStages * kStageBytes;
  static_assert(Tile::kStages >= 3, "elements are stored an iteration after their loads, and read after a barrier");
  static_assert(Tile::kThreads / 32 * Epilogue::kBytes <= kRingBytes);
};

// The shared memory of a block. If all vectors have 16 bytes, the offsets and masks of rows share the memory of the
// ring, because they are read only before the main loop.
template <class Traits> struct MmaSharedMemory {
  char* const ring;
  OutRow* const out_rows;
  GatherEntry *rows, *entries_a, *entries_b;

  __device__ __forceinline__ MmaSharedMemory(char* memory, const MmaParams& p)
      : ring(memory), out_rows(reinterpret_cast<OutRow*>(memory + Traits::kRingBytes)) {
    constexpr bool kWide = Traits::kWideVectors;
    GatherEntry* const after_rows = reinterpret_cast<GatherEntry*>(out_rows + Traits::Tile::kM);
    rows = kWide ? reinterpret_cast<GatherEntry*>(memory) : after_rows;
    entries_a = after_rows + (kWide ? 0 : Traits::GatherA::kRowEntries + Traits::GatherB::kRowEntries);
    entries_b = entries_a + (p.a.table ? 2 * p.group_slices * Traits::GatherA::kKEntries : 0);
  }
};

// Multiplies the slice at `from` in the ring. Its first 32 bytes along k are in registers already.
//
// Tensor cores truncate their sums, which gives a biased error that grows with k. For three TF32 products, it would be
// too large: tensor cores sum only one slice at a time, and float32 additions, which round, add the slices.
template <class Traits, class Fragments, class Sums>
__device__ __forceinline__ void multiply_slice(uint32_t from, uint32_t lane_a, uint32_t lane_b, Fragments& fragments,
                                               Sums& sums) {
  constexpr int kSteps = kSliceBytes / kFragmentBytes, kProducts = Traits::kProducts;
  Sums sums_of_slice;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) fragments.load(from, lane_a, lane_b, step + 1);
    multiply<typename Traits::T, kProducts>(kProducts == 3 ? sums_of_slice : sums, fragments, step);
  }
  if constexpr (kProducts == 3) sums.each([&](float& v, int i, int e) { v += sums_of_slice.of[i][e]; });
}

// Computes the offsets and masks of k for a group of slices. `slice` is the group's first slice, relative to the
// block's first slice.
template <class Traits>
__device__ void look_up_k(const MmaParams& p, const MmaSharedMemory<Traits>& smem, uint32_t first_slice, int slice) {
  constexpr int kEntriesA = Traits::GatherA::kKEntries, kEntriesB = Traits::GatherB::kKEntries, kK = Traits::kK;
  constexpr uint32_t kItem = sizeof(typename Traits::T);
  const uint32_t first_k = (first_slice + slice) * kK, group = slice & (2 * p.group_slices - 1), i = threadIdx.x;
  if (p.a.table && i < p.group_slices * kEntriesA)
    smem.entries_a[group * kEntriesA + i] = k_entry(p.k, p.a, kItem, first_k + i * (kK / kEntriesA));
  const uint32_t j = threadIdx.x - p.first_b;
  if (p.b.table && j < p.group_slices * kEntriesB)
    smem.entries_b[group * kEntriesB + j] = k_entry(p.k, p.b, kItem, first_k + j * (kK / kEntriesB));
}

template <class T, class Tile, int kProducts, bool kAAlongK, bool kBAlongK, bool kWide, Activation kActivation,
          Formula kFormula>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    mma_gather(const __grid_constant__ MmaParams p, const __grid_constant__ GemmArgs args) {
  using Traits = MmaTraits<T, Tile, kProducts, kAAlongK, kBAlongK, kWide, kActivation, kFormula>;
  using GatherA = typename Traits::GatherA;
  using GatherB = typename Traits::GatherB;
  using SliceA = typename Traits::SliceA;
  using SliceB = typename Traits::SliceB;
  using Epilogue = typename Traits::Epilogue;
  constexpr int kStages = Tile::kStages, kK = Traits::kK, kStageBytes = Traits::kStageBytes;
  griddep_launch_dependents();

  const MmaSharedMemory<Traits> smem(dynamic_shared(), p);
  const uint32_t ring = cvta_to_shared(smem.ring);
  const MmaBlock block = mma_block(p);
  const uint32_t first_slice = block.split * p.slices_per_split;
  const int slices = int(min_of(p.slices_per_split, ceil_div(p.k.size, uint32_t(kK)) - first_slice));
  const GemmCoordinates32 batch = p.batch.coordinates(block.batch);
  auto data = [&](const GatherOperand& o, const void* at) {
    return static_cast<const char*>(at) + (o.offset + offset_of(o.batch, batch)) * int64_t(sizeof(T));
  };

  GatherA a;
  GatherB b;
  a.prepare(p.m, p.a, block.m * Tile::kM, smem.rows);
  b.prepare(p.n, p.b, block.n * Tile::kN, smem.rows + GatherA::kRowEntries);
  if (p.group_slices) look_up_k(p, smem, first_slice, 0);
  __syncthreads();
  a.begin(data(p.a, args.a));
  b.begin(data(p.b, args.b));
  SliceIterator next_slice;
  next_slice.begin<T>(p, first_slice);

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / Tile::kWarpsN * Tile::kWarpM, warp_n = warp % Tile::kWarpsN * Tile::kWarpN;
  const uint32_t lane_a = SliceA::lane_offset(warp_m, false), lane_b = SliceB::lane_offset(warp_n, true);
  typename Epilogue::Sums sums;
  Fragments<Tile, SliceA, SliceB> fragments;
  // The slices in the ring that are multiplied now (from), fetched now (to), and fetched one iteration earlier
  // (before).
  uint32_t from = ring, to = ring, before = ring;
  auto next_stage = [&](uint32_t& stage) {
    stage = stage + kStageBytes < ring + Traits::kRingBytes ? stage + kStageBytes : ring;
  };
  // A slice is fetched kStages - 1 iterations before it is multiplied. The offsets and masks of k are computed one
  // group of slices ahead.
#pragma unroll 1
  for (int slice = 1 - kStages; slice < slices; ++slice) {
    cp_async_wait_group<kStages - 2>();
    // Now all threads can read this slice and the offsets and masks of k, and have finished the previous slice.
    __syncthreads();
    if (slice >= 0) fragments.load(from, lane_a, lane_b, 0);
    const int next = slice + kStages - 1, slot = next & (2 * p.group_slices - 1);
    if (next > 0 && next <= slices) {
      a.finish(before);
      b.finish(before + SliceA::kBytes);
    }
    if (next < slices) {
      a.start(to, p.a, {smem.entries_a + slot * GatherA::kKEntries, next_slice.a, next_slice.mask_a, next_slice.left});
      b.start(to + SliceA::kBytes, p.b,
              {smem.entries_b + slot * GatherB::kKEntries, next_slice.b, next_slice.mask_b, next_slice.left});
      next_slice.advance<T>(p);
    }
    cp_async_commit_group();
    if (p.group_slices && (next & (p.group_slices - 1)) == 0) look_up_k(p, smem, first_slice, next + p.group_slices);
    if (slice >= 0) {
      multiply_slice<Traits>(from, lane_a, lane_b, fragments, sums);
      next_stage(from);
    } else if (slice == -1) {  // computes the offsets of y during the first fetches
      for (int r = threadIdx.x; r < Tile::kM; r += Tile::kThreads)
        smem.out_rows[r] = out_row(p.y, block.m * Tile::kM + r);
    }
    before = to;
    next_stage(to);
  }

  cp_async_wait_group<0>();
  // All warps have read the last slice, and the epilogue reuses the shared memory.
  __syncthreads();
  void* y = args.y;
  if (p.split_stride) y = static_cast<float*>(y) + block.split * p.split_stride;
  const StagedTile tile{block.batch, block.m * Tile::kM + warp_m, block.n * Tile::kN + warp_n,
                        smem.ring + warp * Epilogue::kBytes, smem.out_rows + warp_m};
  Epilogue(p.y, args, y, p.relu, p.y_is_float32, tile).store(sums);
  griddep_wait();
}

}  // namespace minidnn
