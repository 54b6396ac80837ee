// SPDX-License-Identifier: Apache-2.0
// Products of float32 without tensor cores, for matmul and every convolution: true float32, sums in the order of k.
// A block computes a tile of y with 8 x 8 sums a thread. Slices of 16 of k pass through three buffers of shared memory,
// [k][position], which cp.async fills, by 16 bytes along rows or by single elements from anywhere (a transposed operand
// comes the right way round for nothing); what lies outside a window or beyond an edge arrives as zero. Addresses are
// entries of shared tables, of rows once and of k for each slice, so that the main loop divides nothing.
// A multiply-add costs an issue slot, and so does all else: of a slice's 1100 to 1190 instructions a thread 1024 are
// multiply-adds, which bounds it at 0.93 to 0.86 of the device's peak.
#include "cuda/device/mma.cuh"
#include "cuda/gemm/simt_math.h"

namespace minidnn {

struct alignas(16) Four {
  float v[4];
};

__device__ __forceinline__ SimtEntry load(const SimtEntry& entry) {  // 16 bytes at once
  uint4 words = *reinterpret_cast<const uint4*>(&entry);
  return {int64_t(words.y) << 32 | int64_t(words.x), words.z, 0};
}

// One slice of an operand. Neighbouring threads read along rows, four rows at a time where they are 16 aligned bytes, or
// along k, eight of it. Rows come by position. Entries are read some at a time before the copies that need them: a copy
// right after a read of shared memory costs three further instructions on sm_90.
template <int kLines, int kVector, int kThreads, int kPitch>
__device__ __forceinline__ void fetch(float (&slice)[kSimtTileK][kPitch], const SimtEntry* rows, const SimtEntry* ks,
                                      bool along_k) {
  auto copies = [&]<int kRows, int kKs>(int line, int line_step, int k, int k_step) {
    SimtEntry row[kRows], at_k[kKs];
#pragma unroll
    for (int i = 0; i < kRows; ++i) row[i] = load(rows[line + i * line_step]);
#pragma unroll
    for (int j = 0; j < kKs; ++j) at_k[j] = load(ks[k + j * k_step]);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kKs; ++j)
        cp_async<4 * kVector>(shared_address(&slice[k + j * k_step][line + i * line_step]),
                              reinterpret_cast<const char*>(row[i].offset + at_k[j].offset),
                              row[i].mask & at_k[j].mask ? 0 : 4 * kVector);
  };
  if (kVector == 1 && along_k) {
    constexpr int kAcross = 8, kDown = kThreads / kAcross, kRows = kLines / kDown < 4 ? kLines / kDown : 4;
    const int k = threadIdx.x % kAcross, first = threadIdx.x / kAcross;
#pragma unroll
    for (int line = 0; line < kLines; line += kRows * kDown)
      copies.template operator()<kRows, kSimtTileK / kAcross>(first + line, kDown, k, kAcross);
  } else {
    constexpr int kRuns = kLines / kVector, kAcross = kRuns < kThreads ? kRuns : kThreads, kDown = kThreads / kAcross;
    constexpr int kKs = kSimtTileK / kDown < 8 ? kSimtTileK / kDown : 8;
    const int first = threadIdx.x % kAcross * kVector, k = threadIdx.x / kAcross;
#pragma unroll
    for (int line = 0; line < kLines; line += kAcross * kVector)
#pragma unroll
      for (int j = 0; j < kSimtTileK; j += kKs * kDown)
        copies.template operator()<1, kKs>(first + line, 0, k + j, kDown);
  }
}

// sums += a b over a slice; a and b point at the thread's first position.
template <class Tile>
__device__ __forceinline__ void multiply(float (&sums)[8][8], const float* a, const float* b) {
  constexpr int kPitchA = Tile::kM + Tile::kPad, kPitchB = Tile::kN + Tile::kPad;
  Four from_a[2][2], from_b[2][2];
  auto load = [&](int k) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      from_a[k % 2][g] = *reinterpret_cast<const Four*>(a + k * kPitchA + g * Tile::kGroupM);
      from_b[k % 2][g] = *reinterpret_cast<const Four*>(b + k * kPitchB + g * Tile::kGroupN);
    }
  };
  load(0);
#pragma unroll
  for (int k = 0; k < kSimtTileK; ++k) {
    if (k + 1 < kSimtTileK) load(k + 1);
#pragma unroll
    for (int j = 0; j < 8; ++j)  // this order leaves the fewest conflicts between register banks, 7 % (13.0)
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i][j] += from_a[k % 2][i / 4].v[i % 4] * from_b[k % 2][j / 4].v[j % 4];
  }
}

// Where the rows and columns of the tile are in y, c and bias, in the memory of the slices.
template <int M, int N> struct SimtOut {
  int64_t y_m[M], c_m[M], bias_m[M];
  int64_t y_n[N], c_n[N], bias_n[N];
};

template <int kTileM, int kTileN, int kVectorA, int kVectorB>
__global__ void __launch_bounds__(SimtTile<kTileM, kTileN>::kThreads, SimtTile<kTileM, kTileN>::kBlocksPerSm)
    simt_gemm(const __grid_constant__ SimtParams p) {
  using Tile = SimtTile<kTileM, kTileN>;
  using Shared = SimtShared<kTileM, kTileN>;
  using Out = SimtOut<kTileM, kTileN>;
  constexpr int kThreads = Tile::kThreads, kGroupM = Tile::kGroupM, kGroupN = Tile::kGroupN;
  static_assert(sizeof(Out) <= sizeof(Shared::a) + sizeof(Shared::b));
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared());

  // Blocks count phases first, since neighbouring elements of dx are of different ones, then tiles, splits and batches.
  const uint32_t among_phases = p.phases.divide(blockIdx.x), split_tile = among_phases;
  const SimtPhase& phase = p.phase[blockIdx.x - among_phases * p.phases.divisor];
  const uint32_t split_batch = p.tiles.divide(split_tile), tile = split_tile - split_batch * p.tiles.divisor;
  if (tile >= phase.tiles) return;
  const uint32_t batch_index = p.splits.divide(split_batch), split = split_batch - batch_index * p.splits.divisor;
  const uint32_t slow = phase.fast.divide(tile), fast = tile - slow * phase.fast.divisor;
  const uint32_t first_m = (p.flags & kSimtFastM ? fast : slow) * kTileM;
  const uint32_t first_n = (p.flags & kSimtFastM ? slow : fast) * kTileN;
  const uint32_t first_k = split * p.k_per_split, left_k = phase.k.size > first_k ? phase.k.size - first_k : 0;
  const uint32_t length_k = left_k < p.k_per_split ? left_k : p.k_per_split;
  const int slices = int((length_k + kSimtTileK - 1) / kSimtTileK);
  const Digits batch = p.batch.digits(batch_index);
  const bool in_order_m = kVectorA == 4 || p.flags & kSimtStoreM, in_order_n = kVectorB == 4 || p.flags & kSimtStoreN;

  // Rows, by position: absolute addresses, but for k.
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    uint32_t row = first_m + row_of_position<kGroupM>(i, in_order_m);
    Digits d = phase.m.digits(row);
    int64_t at = reinterpret_cast<int64_t>(p.args.a) + phase.a_offset + offset_of(p.a_batch, batch);
    uint32_t mask = phase.window.taps_in_k ? outside_bits(phase.window, d) : tap_bits(phase.window, d);
    shared.a_row[i] = {at + offset_of(phase.a_row, d), row < phase.m.size ? mask | kRowExists : kNothing, 0};
  }
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    uint32_t row = first_n + row_of_position<kGroupN>(i, in_order_n);
    int64_t at = reinterpret_cast<int64_t>(p.args.b) + phase.b_offset + offset_of(p.b_batch, batch);
    shared.b_row[i] = {at + offset_of(phase.b_row, phase.n.digits(row)), row < phase.n.size ? kRowExists : kNothing, 0};
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  static_assert(2 * kSimtTileK == 32, "a warp makes the entries of a slice, half of them for a");
  auto make_entries = [&](int slice) {  // by each warp in turn
    if (slice >= slices || slice % (kThreads / 32) != warp) return;
    const bool for_a = lane < kSimtTileK;
    uint32_t of_slice = slice * kSimtTileK + lane % kSimtTileK;
    Digits d = phase.k.digits(first_k + of_slice);
    uint32_t mask = kKExists;
    if (for_a) mask |= phase.window.taps_in_k ? tap_bits(phase.window, d) : outside_bits(phase.window, d);
    SimtEntry& entry = for_a ? shared.a_k[slice % 2][lane] : shared.b_k[slice % 2][lane % kSimtTileK];
    entry = {offset_of(for_a ? phase.a_k : phase.b_k, d), of_slice < length_k ? mask : kNothing, 0};
  };
  make_entries(0);

  const int lane_n = Tile::kLanesN == 4 ? lane % 2 + lane / 8 % 2 * 2 : lane % 2;
  const int lane_m = Tile::kLanesN == 4 ? lane / 2 % 4 + lane / 16 * 4 : lane / 2;
  const int warp_m = warp % Tile::kWarpsM * 2 * kGroupM, warp_n = warp / Tile::kWarpsM * 2 * kGroupN;
  const int at_m = warp_m + lane_m * 4, at_n = warp_n + lane_n * 4;
  float sums[8][8] = {};
  for (int slice = 1 - kSimtStages; slice < slices; ++slice) {
    cp_async_wait<kSimtStages - 2>();
    __syncthreads();  // this slice has arrived for all threads, and all have done with the one before
    const int next = slice + kSimtStages - 1;
    if (next < slices) {
      const int buffer = next % kSimtStages;
      fetch<kTileM, kVectorA, kThreads>(shared.a[buffer], shared.a_row, shared.a_k[next % 2], p.flags & kSimtAAlongK);
      fetch<kTileN, kVectorB, kThreads>(shared.b[buffer], shared.b_row, shared.b_k[next % 2], p.flags & kSimtBAlongK);
      make_entries(next + 1);
    }
    cp_async_commit();
    if (slice >= 0) {
      const int buffer = slice % kSimtStages;
      multiply<Tile>(sums, &shared.a[buffer][0][at_m], &shared.b[buffer][0][at_n]);
    }
  }

  __syncthreads();
  Out& out = *reinterpret_cast<Out*>(&shared);
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    Digits d = phase.m.digits(first_m + row_of_position<kGroupM>(i, in_order_m));
    out.y_m[i] = offset_of(phase.y_m, d), out.c_m[i] = offset_of(p.c_m, d), out.bias_m[i] = offset_of(p.bias_m, d);
  }
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    Digits d = phase.n.digits(first_n + row_of_position<kGroupN>(i, in_order_n));
    out.y_n[i] = offset_of(phase.y_n, d), out.c_n[i] = offset_of(p.c_n, d), out.bias_n[i] = offset_of(p.bias_n, d);
  }
  __syncthreads();

  auto position_m = [&](int i) { return at_m + i / 4 * kGroupM + i % 4; };
  auto position_n = [&](int j) { return at_n + j / 4 * kGroupN + j % 4; };
  auto has_m = [&](int i) {
    return first_m + row_of_position<kGroupM>(position_m(i), in_order_m) < phase.m.size;
  };
  auto has_n = [&](int j) {
    return first_n + row_of_position<kGroupN>(position_n(j), in_order_n) < phase.n.size;
  };
  auto at = [](const void* base, int64_t offset) { return reinterpret_cast<const float*>(static_cast<const char*>(base) + offset); };
  const GemmArgs& args = p.args;
  if (args.alpha != 1 || args.c || args.bias || p.flags & kSimtRelu) {
    const int64_t c_batch = offset_of(p.c_batch, batch), bias_batch = offset_of(p.bias_batch, batch);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (!has_m(i) || !has_n(j)) continue;
        float v = args.alpha * sums[i][j];
        if (args.c) v += args.beta * *at(args.c, c_batch + out.c_m[position_m(i)] + out.c_n[position_n(j)]);
        if (args.bias) v += *at(args.bias, bias_batch + out.bias_m[position_m(i)] + out.bias_n[position_n(j)]);
        sums[i][j] = p.flags & kSimtRelu ? activate<Activation::relu>(v, 0.0f) : v;
      }
  }
  char* y = static_cast<char*>(args.y) + phase.y_offset + offset_of(p.y_batch, batch) + split * p.y_split;
  if (p.flags & kSimtStoreM) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (!has_n(j)) continue;
#pragma unroll
      for (int i = 0; i < 8; i += 4)
        if (has_m(i))
          *reinterpret_cast<Four*>(y + out.y_m[position_m(i)] + out.y_n[position_n(j)]) = {
              sums[i][j], sums[i + 1][j], sums[i + 2][j], sums[i + 3][j]};
    }
  } else if (p.flags & kSimtStoreN) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (!has_m(i)) continue;
#pragma unroll
      for (int j = 0; j < 8; j += 4)
        if (has_n(j))
          *reinterpret_cast<Four*>(y + out.y_m[position_m(i)] + out.y_n[position_n(j)]) = {
              sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (!has_m(i)) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (has_n(j)) *reinterpret_cast<float*>(y + out.y_m[position_m(i)] + out.y_n[position_n(j)]) = sums[i][j];
    }
  }
}

}  // namespace minidnn
