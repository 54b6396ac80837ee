// SPDX-License-Identifier: Apache-2.0
// simt_gemm: matrix products in float32 without tensor cores, for matmul and all convolutions. The products round like
// float32 and add in the order of k:
//   y = epilogue(sum over k of a[m, k] b[n, k]), see view.h.
// Block: one tile of y; each thread has 8 x 8 or 8 x 16 sums. Shared memory: five slices of 8 k of both operands, as
// [k][row]. cp.async copies 16 bytes along rows, or single elements from any address, which transposes an operand at no
// cost. Elements that do not exist become zeros. The address of an element is the sum of an offset of its row and an
// offset of its k, both from tables in shared memory. The main loop therefore has no divisions. Speed: every
// instruction costs an issue slot. With 8 x 16 sums, a thread executes 1144 instructions per slice (1188 if one operand
// is copied by single elements); 1024 are multiply-adds. Copies are between multiply-adds: a scheduler has only two
// warps, and would idle while both copy. The code must be short: with slices of 16 k, it missed the instruction cache.
#include "cuda/gemm/simt/copies.cuh"
#include "cuda/gemm/simt/epilogue.cuh"

namespace minidnn {

// The elements of a and b that a thread multiplies for one k.
template <class Tile> struct Operands {
  Four a[Tile::kGroupsM], b[Tile::kGroupsN];

  // `from_a` and `from_b`: shared-memory addresses of the thread's first row at the slice's first k
  __device__ __forceinline__ void load(uint32_t from_a, uint32_t from_b, int k) {
#pragma unroll
    for (int g = 0; g < Tile::kGroupsM; ++g)
      a[g] = load_four(from_a + (k * (Tile::kM + Tile::kPad) + g * Tile::kGroupM) * 4);
#pragma unroll
    for (int g = 0; g < Tile::kGroupsN; ++g)
      b[g] = load_four(from_b + (k * (Tile::kN + Tile::kPad) + g * Tile::kGroupN) * 4);
  }

  // Adds all products to `sums`. Odd columns are traversed backwards, so that consecutive multiply-adds share an
  // operand and read only two more registers, without register bank conflicts. A slice takes 1121 instead of 1225
  // clocks (CUDA 13.0).
  __device__ __forceinline__ void multiply(float (&sums)[Tile::kSumsM][Tile::kSumsN]) const {
#pragma unroll
    for (int j = 0; j < Tile::kSumsN; ++j)
#pragma unroll
      for (int step = 0; step < Tile::kSumsM; ++step) {
        const int i = j % 2 ? Tile::kSumsM - 1 - step : step;
        sums[i][j] += a[i / 4].v[i % 4] * b[j / 4].v[j % 4];
      }
  }
};

// Writes the address and the mask of each row of both operands to shared memory.
template <class Tile>
__device__ void write_row_entries(const SimtParams& p, const SimtPhase& phase, const GemmCoordinates32& batch,
                                  uint32_t first_m, uint32_t first_n, SimtShared<Tile::kM, Tile::kN>& shared) {
  constexpr int kTileM = Tile::kM, kTileN = Tile::kN, kThreads = Tile::kThreads;
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    uint32_t row = first_m + i;
    GemmCoordinates32 d = phase.m.coordinates(row);
    int64_t at = reinterpret_cast<int64_t>(p.args.a) + phase.a_offset + offset_of(p.a_batch, batch);
    uint32_t mask = phase.window.taps_in_k ? outside_bits(phase.window, d) : tap_bits(phase.window, d);
    shared.a_row[i] = {at + offset_of(phase.a_row, d), row < phase.m.size ? mask | kSimtRow : kSimtNothing, 0};
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    uint32_t row = first_n + i;
    int64_t at = reinterpret_cast<int64_t>(p.args.b) + phase.b_offset + offset_of(p.b_batch, batch);
    shared.b_row[i] = {at + offset_of(phase.b_row, phase.n.coordinates(row)),
                       row < phase.n.size ? kSimtRow : kSimtNothing, 0};
  }
}

// Writes the offset and the mask of each k of slices 2 * pair and 2 * pair + 1 to shared memory. One warp calls this:
// 16 lanes for operand a, 16 for b. Beyond length_k, elements are zero.
template <class Tile>
__device__ __forceinline__ void write_k_entries(const SimtParams& p, const SimtPhase& phase,
                                                SimtShared<Tile::kM, Tile::kN>& shared, int lane, int pair,
                                                uint32_t first_k, uint32_t length_k) {
  static_assert(2 * kSimtEntriesK == 32, "a warp makes the entries of two slices, half of them for a");
  const bool for_a = lane < kSimtEntriesK;
  const uint32_t of_split = pair * kSimtEntriesK + lane % kSimtEntriesK, k = first_k + of_split;
  const GemmStrides& strides = for_a ? phase.a_k : phase.b_k;
  uint32_t mask = kSimtK;
  int64_t offset;
  if (p.flags & kSimtOneDigitK) {
    offset = int64_t(k) * strides.of[kDigits - 1];
  } else {
    const GemmCoordinates32 d = phase.k.coordinates(k);
    if (for_a) mask |= phase.window.taps_in_k ? tap_bits(phase.window, d) : outside_bits(phase.window, d);
    offset = offset_of(strides, d);
  }
  (for_a ? shared.a_k : shared.b_k)[of_split % kSimtBufferedK] = {offset, of_split < length_k ? mask : kSimtNothing, 0};
}

// The row and the column of a thread's first sum in the tile, and the first column of its warp.
template <class Tile> struct SumsOfThread {
  int warp_n, at_m, at_n;
  __device__ __forceinline__ SumsOfThread(int warp, int lane) {
    const int lane_n = Tile::kLanesN == 4 ? lane % 2 + lane / 8 % 2 * 2 : lane % 2;
    const int lane_m = Tile::kLanesN == 4 ? lane / 2 % 4 + lane / 16 * 4 : lane / 2;
    const int warp_m = warp % Tile::kWarpsM * Tile::kGroupsM * Tile::kGroupM;
    warp_n = warp / Tile::kWarpsM * Tile::kGroupsN * Tile::kGroupN;
    at_m = warp_m + lane_m * 4;
    at_n = warp_n + lane_n * 4;
  }
};

// The coordinates of a block: phase of backward_data (fastest), split of k, tile, matrix of the batch. Phases are
// fastest because they write adjacent elements of dx.
struct SimtBlockIndices {
  uint32_t phase, split, tile, batch;
  __device__ __forceinline__ explicit SimtBlockIndices(const SimtParams& p) {
    const uint32_t among_phases = p.phases.quotient(blockIdx.x);
    phase = blockIdx.x - among_phases * p.phases.divisor;
    const uint32_t among_tiles = p.splits.quotient(among_phases);
    split = among_phases - among_tiles * p.splits.divisor;
    batch = p.tiles.quotient(among_tiles);
    tile = among_tiles - batch * p.tiles.divisor;
  }
};

template <int kTileM, int kTileN, int kVectorA, int kVectorB>
__global__ void __launch_bounds__(SimtTile<kTileM, kTileN>::kThreads, SimtTile<kTileM, kTileN>::kBlocksPerSm)
    simt_gemm(const __grid_constant__ SimtParams p) {
  using Tile = SimtTile<kTileM, kTileN>;
  using Shared = SimtShared<kTileM, kTileN>;
  using Out = SimtSharedOut<kTileM, kTileN>;
  constexpr int kThreads = Tile::kThreads;
  extern __shared__ float4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  const SimtBlockIndices index(p);
  const uint32_t phase_index = index.phase, split = index.split, tile = index.tile;
  const SimtPhase& phase = p.phase[phase_index];
  // Phases can have fewer tiles than the largest one. Clusters never return here: k is split only if there is one
  // phase.
  if (tile >= phase.tiles) return;
  const uint32_t slow = phase.fast.quotient(tile), fast = tile - slow * phase.fast.divisor;
  const uint32_t first_m = (p.flags & kSimtFastM ? fast : slow) * kTileM;
  const uint32_t first_n = (p.flags & kSimtFastM ? slow : fast) * kTileN;
  const uint32_t first_k = split * p.k_per_split, left_k = phase.k.size > first_k ? phase.k.size - first_k : 0;
  const uint32_t length_k = left_k < p.k_per_split ? left_k : p.k_per_split;
  const int slices = int((length_k + kSimtTileK - 1) / kSimtTileK);
  const GemmCoordinates32 batch = p.batch.coordinates(index.batch);
  if (threadIdx.x == 0)
    shared.block = {phase_index,
                    first_m,
                    first_n,
                    phase.y_offset + offset_of(p.y_batch, batch) + split * p.y_split,
                    offset_of(p.c_batch, batch),
                    offset_of(p.bias_batch, batch)};

  write_row_entries<Tile>(p, phase, batch, first_m, first_n, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto make_entries = [&](int pair) { write_k_entries<Tile>(p, phase, shared, lane, pair, first_k, length_k); };
#pragma unroll 1
  for (int pair = warp; pair < 3; pair += kThreads / 32) make_entries(pair);

  const SumsOfThread<Tile> own(warp, lane);
  const int warp_n = own.warp_n, at_m = own.at_m, at_n = own.at_n;
  constexpr uint32_t kSliceBytes = sizeof(typename Shared::Slice), kLastSlice = (kSimtStages - 1) * kSliceBytes;
  constexpr uint32_t kPitchA = kTileM + Tile::kPad, kPitchB = kTileN + Tile::kPad, kToB = kSimtTileK * kPitchA * 4;
  const uint32_t slices_at = cvta_to_shared(&shared.slice[0]);
  SimtCopies<kTileM, kVectorA, kThreads> copies_a(cvta_to_shared(shared.a_row), cvta_to_shared(shared.a_k),
                                                  p.flags & kSimtAAlongK);
  SimtCopies<kTileN, kVectorB, kThreads> copies_b(cvta_to_shared(shared.b_row), cvta_to_shared(shared.b_k),
                                                  p.flags & kSimtBAlongK);
  uint32_t to = slices_at, from = slices_at, to_k = 0;
  auto after = [&](uint32_t slice) { return slice == slices_at + kLastSlice ? slices_at : slice + kSliceBytes; };
  // A slice is copied in four steps. Slices past the end are copied as zeros, which costs less than a branch.
  auto read = [&](int step) {
    copies_a.read(step, to_k);
    copies_b.read(step, to_k);
  };
  auto copy = [&](int step) {
    copies_a.copy(step, to);
    copies_b.copy(step, to + kToB);
    if (step < 3) return;
    cp_async_commit_group();
    to = after(to);
    to_k = (to_k + kSimtTileK * sizeof(SimtEntry)) % (kSimtBufferedK * sizeof(SimtEntry));
  };
  __syncthreads();
#pragma unroll 1
  for (int slice = 0; slice < kSimtStages - 1; ++slice)
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      read(step);
      copy(step);
    }
  float sums[Tile::kSumsM][Tile::kSumsN] = {};
  Operands<Tile> of_k[2];
  cp_async_wait_group<kSimtStages - 2>();
  __syncthreads();
  of_k[0].load(from + at_m * 4, from + kToB + at_n * 4, 0);
#pragma unroll 1
  for (int slice = 0; slice < slices; ++slice) {
    // One warp computes the offsets and masks of k for two later slices.
    if (slice % 2 == 0 && slice / 2 % (kThreads / 32) == warp) make_entries(slice / 2 + 3);
    const uint32_t a = from + at_m * 4, b = from + kToB + at_n * 4;
#pragma unroll
    for (int k = 0; k < kSimtTileK; ++k) {
      if (k + 1 < kSimtTileK) {
        of_k[(k + 1) % 2].load(a, b, k + 1);
      } else {  // the next slice has arrived, and all threads have finished this one
        cp_async_wait_group<kSimtStages - 2>();
        __syncthreads();
        from = after(from);
        of_k[0].load(from + at_m * 4, from + kToB + at_n * 4, 0);
      }
      if (k < 4) read(k);
      of_k[k % 2].multiply(sums);
      if (k < 4) copy(k);
    }
  }

  cp_async_wait_group<0>();
  __syncthreads();
  const SimtBlock block = shared.block;
  const SimtPhase& of = p.phase[block.phase];
  Out& out = *reinterpret_cast<Out*>(&shared);
  write_offsets<Tile>(p, of, block, out);
  const bool along_m = p.flags & kSimtAlongM;
  // alpha is applied on the way to shared memory, not in registers.
  const float alpha = p.args.alpha;
  char* y = static_cast<char*>(p.args.y) + block.y;
  const char* c = p.args.c ? static_cast<const char*>(p.args.c) + block.c : nullptr;
  const char* bias = p.args.bias ? static_cast<const char*>(p.args.bias) + block.bias : nullptr;
  constexpr int kColumns = Out::kColumns;
  const int left_m = int(of.m.size - block.first_m);
  const SimtSplitBlocks sharers(p);
#pragma unroll 1
  for (int pass = 0; pass < Out::kPasses; ++pass) {
    if (pass) sharers.read();
    if (warp_n / kColumns == pass) {
      write_sums<Tile>(sums, alpha, along_m, at_m, at_n - pass * kColumns, out.sums);
    }
    sharers.written();
    const int first = pass * kColumns, left_n = int(of.n.size - block.first_n) - first;
    const SimtOutSide m{out.y_m, out.c_m, out.bias_m, left_m};
    const SimtOutSide n{out.y_n + first, out.c_n + first, out.bias_n + first, left_n};
    if (along_m && p.flags & kSimtVectors) store<4, kThreads, kTileM, kColumns>(out.sums, p, y, c, bias, m, n, sharers);
    else if (along_m) store<1, kThreads, kTileM, kColumns>(out.sums, p, y, c, bias, m, n, sharers);
    else if (p.flags & kSimtVectors) store<4, kThreads, kColumns, kTileM>(out.sums, p, y, c, bias, n, m, sharers);
    else store<1, kThreads, kColumns, kTileM>(out.sums, p, y, c, bias, n, m, sharers);
  }
  // Other blocks of the cluster may still read this block's shared memory.
  if (sharers.count > 1) sharers.read();
}

}  // namespace minidnn
