// SPDX-License-Identifier: Apache-2.0
// Products of float32 without tensor cores, for matmul and every convolution: true float32, sums in the order of k.
// A block computes a tile of y with 8 x 8 or 8 x 16 sums a thread. Slices of 16 of k pass through three buffers of shared memory,
// [k][row], which cp.async fills, by 16 bytes along rows or by single elements from anywhere (a transposed operand
// comes the right way round for nothing); what lies outside a window or beyond an edge arrives as zero. Addresses are
// entries of shared tables, of rows once and of k for each slice, so that the main loop divides nothing.
// A multiply-add costs an issue slot, and so does all else: of a slice's 2160 instructions a thread with 8 x 16 sums, and some 80
// about copies, 2048 are multiply-adds, which bounds it at 0.91 of the device's peak (0.86 with 8 x 8).
#include "cuda/device/async_copy.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/gemm/simt_math.h"

namespace minidnn {

struct alignas(16) Four {
  float v[4];
};

__device__ __forceinline__ SimtEntry load(const SimtEntry& entry) {  // 16 bytes at once
  uint4 words = *reinterpret_cast<const uint4*>(&entry);
  return {int64_t(words.y) << 32 | int64_t(words.x), words.z, 0};
}

// By the 32-bit address: of a pointer the compiler would find the address again for each slice.
__device__ __forceinline__ Four load_shared(uint32_t from) {
  Four f;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(f.v[0]), "=f"(f.v[1]), "=f"(f.v[2]), "=f"(f.v[3])
               : "r"(from)
               : "memory");
  return f;
}

// Copies some rows by some of k. Entries are all read before the first copy: a copy after a read of shared memory costs three
// further instructions on sm_90.
template <int kVector, int kRows, int kKs, int kPitch>
__device__ __forceinline__ void copy(uint32_t slice, const SimtEntry* rows, const SimtEntry* ks, int line,
                                     int line_step, int k, int k_step) {
  SimtEntry row[kRows], at_k[kKs];
#pragma unroll
  for (int i = 0; i < kRows; ++i) row[i] = load(rows[line + i * line_step]);
#pragma unroll
  for (int j = 0; j < kKs; ++j) at_k[j] = load(ks[k + j * k_step]);
  const uint32_t to = slice + (k * kPitch + line) * 4;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kKs; ++j)
      copy_async<4 * kVector>(to + (j * k_step * kPitch + i * line_step) * 4,
                              reinterpret_cast<const char*>(row[i].offset + at_k[j].offset),
                              (row[i].mask & at_k[j].mask) == 0);
}

// One slice of an operand. Neighbouring threads read along rows, four rows at a time where they are 16 aligned bytes, or
// along k, eight of it.
template <int kLines, int kVector, int kThreads, int kPitch>
__device__ __forceinline__ void fetch(uint32_t slice, const SimtEntry* rows, const SimtEntry* ks, bool along_k) {
  if (kVector == 1 && along_k) {
    constexpr int kAcross = 8, kDown = kThreads / kAcross, kRows = kLines / kDown < 4 ? kLines / kDown : 4;
    const int k = threadIdx.x % kAcross, first = threadIdx.x / kAcross;
#pragma unroll
    for (int line = 0; line < kLines; line += kRows * kDown)
      copy<kVector, kRows, kSimtTileK / kAcross, kPitch>(slice, rows, ks, first + line, kDown, k, kAcross);
  } else {
    constexpr int kRuns = kLines / kVector, kAcross = kRuns < kThreads ? kRuns : kThreads, kDown = kThreads / kAcross;
    constexpr int kKs = kSimtTileK / kDown < 8 ? kSimtTileK / kDown : 8;
    const int first = threadIdx.x % kAcross * kVector, k = threadIdx.x / kAcross;
#pragma unroll
    for (int line = 0; line < kLines; line += kAcross * kVector)
#pragma unroll
      for (int j = 0; j < kSimtTileK; j += kKs * kDown)
        copy<kVector, 1, kKs, kPitch>(slice, rows, ks, first + line, 0, k + j, kDown);
  }
}

// What a thread reads of one k.
template <class Tile> struct Operands {
  Four a[Tile::kRunsM], b[Tile::kRunsN];

  // From the thread's first row and column in shared memory.
  __device__ __forceinline__ void load(uint32_t from_a, uint32_t from_b, int k) {
#pragma unroll
    for (int g = 0; g < Tile::kRunsM; ++g)
      a[g] = load_shared(from_a + (k * (Tile::kM + Tile::kPad) + g * Tile::kGroupM) * 4);
#pragma unroll
    for (int g = 0; g < Tile::kRunsN; ++g)
      b[g] = load_shared(from_b + (k * (Tile::kN + Tile::kPad) + g * Tile::kGroupN) * 4);
  }

  // sums += a b. Columns there and back: two multiply-adds in a row share an operand, at the turns too, so that registers are
  // read twice for each, what a scheduler's two banks give in a clock: 1121 clocks a slice, 1225 without the turns (13.0).
  __device__ __forceinline__ void multiply(float (&sums)[Tile::kSumsM][Tile::kSumsN]) const {
#pragma unroll
    for (int j = 0; j < Tile::kSumsN; ++j)
#pragma unroll
      for (int turn = 0; turn < Tile::kSumsM; ++turn) {
        const int i = j % 2 ? Tile::kSumsM - 1 - turn : turn;
        sums[i][j] += a[i / 4].v[i % 4] * b[j / 4].v[j % 4];
      }
  }
};

// Where the rows or the columns of a tile lie, and how many exist.
struct SimtOutSide {
  const int64_t *y, *c, *bias;
  int left;
};

// The blocks that share a tile, each with its part of k: a cluster, or one.
struct SimtSharers {
  uint32_t count = 1, rank = 0;

  __device__ __forceinline__ explicit SimtSharers(const SimtParams& p) {
#if __CUDA_ARCH__ >= 900
    if (p.flags & kSimtCluster) count = p.splits.divisor, rank = cluster_rank();
#endif
  }
  // After writing what others read, and after reading what others will write over.
  __device__ __forceinline__ void written() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) return cluster_sync();
#endif
    __syncthreads();
  }
  __device__ __forceinline__ void read() const {
#if __CUDA_ARCH__ >= 900
    if (count > 1) return cluster_sync_relaxed();
#endif
    __syncthreads();
  }
  template <int kVector> __device__ __forceinline__ Four sum(const float* at) const {
    Four v;
#if __CUDA_ARCH__ >= 900
    if (count > 1) {
      const uint32_t address = shared_address(at);
      load_of_block<kVector>(v.v, address, 0);
#pragma unroll 4
      for (uint32_t block = 1; block < count; ++block) {
        Four more;
        load_of_block<kVector>(more.v, address, block);
#pragma unroll
        for (int i = 0; i < kVector; ++i) v.v[i] += more.v[i];
      }
      return v;
    }
#endif
    if constexpr (kVector == 4) v = *reinterpret_cast<const Four*>(at);
    else v.v[0] = *at;
    return v;
  }
};

// Sums, times alpha, to y, c and bias added: kVector neighbours in memory at a time, neighbouring threads side by side. `sums` is
// [across][along + pad]; those who share the tile take turns.
template <int kVector, int kThreads, int kAlong, int kAcross>
__device__ __forceinline__ void store(const float* sums, const SimtParams& p, char* y, const char* c, const char* bias,
                                      const SimtOutSide& at_along, const SimtOutSide& at_across,
                                      const SimtSharers& sharers) {
  constexpr int kRuns = kAlong / kVector, kPitch = kAlong + 4;
  const bool extras = c || bias || p.flags & kSimtRelu;
#pragma unroll 1
  for (uint32_t e = sharers.rank * kThreads + threadIdx.x; e < kRuns * kAcross; e += sharers.count * kThreads) {
    const int along = e % kRuns * kVector, across = e / kRuns;
    if (along >= at_along.left || across >= at_across.left) continue;
    Four v = sharers.sum<kVector>(sums + across * kPitch + along);
    if (extras)  // one branch: as predicates they would be three quarters of the loop's instructions
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (c) v.v[i] += p.args.beta * *reinterpret_cast<const float*>(c + at_along.c[along + i] + at_across.c[across]);
        if (bias) v.v[i] += *reinterpret_cast<const float*>(bias + at_along.bias[along + i] + at_across.bias[across]);
        if (p.flags & kSimtRelu) v.v[i] = activate<Activation::relu>(v.v[i], 0.0f);
      }
    char* to = y + at_along.y[along] + at_across.y[across];
    if constexpr (kVector == 4) *reinterpret_cast<Four*>(to) = v;
    else *reinterpret_cast<float*>(to) = v.v[0];
  }
}

template <int kTileM, int kTileN, int kVectorA, int kVectorB>
__global__ void __launch_bounds__(SimtTile<kTileM, kTileN>::kThreads, SimtTile<kTileM, kTileN>::kBlocksPerSm)
    simt_gemm(const __grid_constant__ SimtParams p) {
  using Tile = SimtTile<kTileM, kTileN>;
  using Shared = SimtShared<kTileM, kTileN>;
  using Out = SimtSharedOut<kTileM, kTileN>;
  constexpr int kThreads = Tile::kThreads, kGroupM = Tile::kGroupM, kGroupN = Tile::kGroupN;
  static_assert(sizeof(Out) <= sizeof(Shared) - sizeof(SimtPlace));
  extern __shared__ float4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);

  // Blocks count phases first, since neighbouring elements of dx are of different ones, then splits, tiles and batches.
  const uint32_t among_phases = p.phases.quotient(blockIdx.x),
                 phase_index = blockIdx.x - among_phases * p.phases.divisor;
  const SimtPhase& phase = p.phase[phase_index];
  const uint32_t among_tiles = p.splits.quotient(among_phases), split = among_phases - among_tiles * p.splits.divisor;
  const uint32_t batch_index = p.tiles.quotient(among_tiles), tile = among_tiles - batch_index * p.tiles.divisor;
  if (tile >= phase.tiles) return;  // never of a cluster: where k is split there is one phase
  const uint32_t slow = phase.fast.quotient(tile), fast = tile - slow * phase.fast.divisor;
  const uint32_t first_m = (p.flags & kSimtFastM ? fast : slow) * kTileM;
  const uint32_t first_n = (p.flags & kSimtFastM ? slow : fast) * kTileN;
  const uint32_t first_k = split * p.k_per_split, left_k = phase.k.size > first_k ? phase.k.size - first_k : 0;
  const uint32_t length_k = left_k < p.k_per_split ? left_k : p.k_per_split;
  const int slices = int((length_k + kSimtTileK - 1) / kSimtTileK);
  const SimtDigits batch = p.batch.digits(batch_index);
  if (threadIdx.x == 0)
    shared.place = {phase_index,
                    first_m,
                    first_n,
                    phase.y_offset + offset_of(p.y_batch, batch) + split * p.y_split,
                    offset_of(p.c_batch, batch),
                    offset_of(p.bias_batch, batch)};

  // Rows: absolute addresses, but for k.
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    uint32_t row = first_m + i;
    SimtDigits d = phase.m.digits(row);
    int64_t at = reinterpret_cast<int64_t>(p.args.a) + phase.a_offset + offset_of(p.a_batch, batch);
    uint32_t mask = phase.window.taps_in_k ? outside_bits(phase.window, d) : tap_bits(phase.window, d);
    shared.a_row[i] = {at + offset_of(phase.a_row, d), row < phase.m.size ? mask | kSimtRow : kSimtNothing, 0};
  }
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    uint32_t row = first_n + i;
    int64_t at = reinterpret_cast<int64_t>(p.args.b) + phase.b_offset + offset_of(p.b_batch, batch);
    shared.b_row[i] = {at + offset_of(phase.b_row, phase.n.digits(row)), row < phase.n.size ? kSimtRow : kSimtNothing,
                       0};
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  static_assert(2 * kSimtTileK == 32, "a warp makes the entries of a slice, half of them for a");
  auto make_entries = [&](int slice) {  // by each warp in turn
    if (slice >= slices || slice % (kThreads / 32) != warp) return;
    const bool for_a = lane < kSimtTileK;
    const uint32_t of_slice = slice * kSimtTileK + lane % kSimtTileK, k = first_k + of_slice;
    const GemmStrides& strides = for_a ? phase.a_k : phase.b_k;
    uint32_t mask = kSimtK;
    int64_t offset;
    if (p.flags & kSimtOneDigitK) {
      offset = int64_t(k) * strides.of[kDigits - 1];
    } else {
      const SimtDigits d = phase.k.digits(k);
      if (for_a) mask |= phase.window.taps_in_k ? tap_bits(phase.window, d) : outside_bits(phase.window, d);
      offset = offset_of(strides, d);
    }
    SimtEntry& entry = for_a ? shared.a_k[slice % 2][lane] : shared.b_k[slice % 2][lane % kSimtTileK];
    entry = {offset, of_slice < length_k ? mask : kSimtNothing, 0};
  };
  make_entries(0);

  const int lane_n = Tile::kLanesN == 4 ? lane % 2 + lane / 8 % 2 * 2 : lane % 2;
  const int lane_m = Tile::kLanesN == 4 ? lane / 2 % 4 + lane / 16 * 4 : lane / 2;
  const int warp_m = warp % Tile::kWarpsM * Tile::kRunsM * kGroupM,
            warp_n = warp / Tile::kWarpsM * Tile::kRunsN * kGroupN;
  const int at_m = warp_m + lane_m * 4, at_n = warp_n + lane_n * 4;
  constexpr uint32_t kSliceBytes = sizeof(typename Shared::Slice), kLastSlice = (kSimtStages - 1) * kSliceBytes;
  constexpr uint32_t kPitchA = kTileM + Tile::kPad, kPitchB = kTileN + Tile::kPad, kToB = kSimtTileK * kPitchA * 4;
  const uint32_t slices_at = shared_address(&shared.slice[0]);
  uint32_t to = slices_at, from = slices_at;
  auto fetch_next = [&](int next) {
    if (next < slices) {
      fetch<kTileM, kVectorA, kThreads, kPitchA>(to, shared.a_row, shared.a_k[next % 2], p.flags & kSimtAAlongK);
      fetch<kTileN, kVectorB, kThreads, kPitchB>(to + kToB, shared.b_row, shared.b_k[next % 2], p.flags & kSimtBAlongK);
      make_entries(next + 1);
      to = to == slices_at + kLastSlice ? slices_at : to + kSliceBytes;
    }
    commit_copies();
  };
#pragma unroll 1
  for (int next = 0; next < kSimtStages - 1; ++next) {
    __syncthreads();  // its entries have been made
    fetch_next(next);
  }
  float sums[Tile::kSumsM][Tile::kSumsN] = {};
  Operands<Tile> of_k[2];
  wait_copies<kSimtStages - 2>();
  __syncthreads();
  of_k[0].load(from + at_m * 4, from + kToB + at_n * 4, 0);
#pragma unroll 1
  for (int slice = 0; slice < slices; ++slice) {
    fetch_next(slice + kSimtStages - 1);
    const uint32_t a = from + at_m * 4, b = from + kToB + at_n * 4;
#pragma unroll
    for (int k = 0; k < kSimtTileK; ++k) {
      if (k + 1 < kSimtTileK) {
        of_k[(k + 1) % 2].load(a, b, k + 1);
      } else {  // the next slice, once it has arrived for all threads; all have read this one then
        wait_copies<kSimtStages - 2>();
        __syncthreads();
        from = from == slices_at + kLastSlice ? slices_at : from + kSliceBytes;
        of_k[0].load(from + at_m * 4, from + kToB + at_n * 4, 0);
      }
      of_k[k % 2].multiply(sums);
    }
  }

  __syncthreads();
  const SimtPlace place = shared.place;
  const SimtPhase& of = p.phase[place.phase];
  Out& out = *reinterpret_cast<Out*>(&shared);
  for (int i = threadIdx.x; i < kTileM; i += kThreads) {
    const SimtDigits d = of.m.digits(place.first_m + i);
    out.y_m[i] = offset_of(of.y_m, d);
    if (p.args.c) out.c_m[i] = offset_of(p.c_m, d);
    if (p.args.bias) out.bias_m[i] = offset_of(p.bias_m, d);
  }
  for (int i = threadIdx.x; i < kTileN; i += kThreads) {
    const SimtDigits d = of.n.digits(place.first_n + i);
    out.y_n[i] = offset_of(of.y_n, d);
    if (p.args.c) out.c_n[i] = offset_of(p.c_n, d);
    if (p.args.bias) out.bias_n[i] = offset_of(p.bias_n, d);
  }
  const bool along_m = p.flags & kSimtAlongM;
  const float alpha = p.args.alpha;  // multiplying here frees the sums from having to be neighbours in registers
  char* y = static_cast<char*>(p.args.y) + place.y;
  const char* c = p.args.c ? static_cast<const char*>(p.args.c) + place.c : nullptr;
  const char* bias = p.args.bias ? static_cast<const char*>(p.args.bias) + place.bias : nullptr;
  constexpr int kColumns = Out::kColumns, kPitchM = kTileM + Tile::kPad, kPitchN = kColumns + Tile::kPad;
  const int left_m = int(of.m.size - place.first_m);
  const SimtSharers sharers(p);
#pragma unroll 1
  for (int pass = 0; pass < Out::kPasses; ++pass) {
    if (pass) sharers.read();
    if (warp_n / kColumns == pass) {
      const int column = at_n - pass * kColumns;
#pragma unroll
      for (int i = 0; i < Tile::kSumsM; i += 4)
#pragma unroll
        for (int j = 0; j < Tile::kSumsN; j += 4) {
          if (along_m) {
            float* at = out.sums + (column + j / 4 * kGroupN) * kPitchM + at_m + i / 4 * kGroupM;
#pragma unroll
            for (int l = 0; l < 4; ++l)
              *reinterpret_cast<Four*>(at + l * kPitchM) = {alpha * sums[i][j + l], alpha * sums[i + 1][j + l],
                                                            alpha * sums[i + 2][j + l], alpha * sums[i + 3][j + l]};
          } else {
            float* at = out.sums + (at_m + i / 4 * kGroupM) * kPitchN + column + j / 4 * kGroupN;
#pragma unroll
            for (int l = 0; l < 4; ++l)
              *reinterpret_cast<Four*>(at + l * kPitchN) = {alpha * sums[i + l][j], alpha * sums[i + l][j + 1],
                                                            alpha * sums[i + l][j + 2], alpha * sums[i + l][j + 3]};
          }
        }
    }
    sharers.written();
    const int first = pass * kColumns, left_n = int(of.n.size - place.first_n) - first;
    const SimtOutSide m{out.y_m, out.c_m, out.bias_m, left_m};
    const SimtOutSide n{out.y_n + first, out.c_n + first, out.bias_n + first, left_n};
    if (along_m && p.flags & kSimtVectors) store<4, kThreads, kTileM, kColumns>(out.sums, p, y, c, bias, m, n, sharers);
    else if (along_m) store<1, kThreads, kTileM, kColumns>(out.sums, p, y, c, bias, m, n, sharers);
    else if (p.flags & kSimtVectors) store<4, kThreads, kColumns, kTileM>(out.sums, p, y, c, bias, n, m, sharers);
    else store<1, kThreads, kColumns, kTileM>(out.sums, p, y, c, bias, n, m, sharers);
  }
  if (sharers.count > 1) sharers.read();  // others may be reading this block's sums
}

}  // namespace minidnn
