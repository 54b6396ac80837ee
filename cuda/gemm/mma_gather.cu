// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions on tensor cores, mma.sync of sm_80 and later, from any strides: cp.async gathers
// what a GemmView describes. A block computes a tile of y in registers; slices of 64 bytes along k go through a ring in
// shared memory. Index arithmetic: gather.h. Shapes are run-time values; compile-time are the tile, the dtype and, of
// each operand, whether its vectors lie along k or along its rows.
//
// In shared memory a slice has lines of vectors as they lie in global memory: 64 bytes of k for each row, or all rows
// for each k. Chunks of 16 bytes are exchanged within a line (place()), so that neither cp.async nor the loads of
// fragments meet in a bank.
#include "cuda/device/mma.cuh"
#include "cuda/gemm/gather.h"
#include "cuda/gemm/staged_epilogue.cuh"

namespace minidnn {

// kBlocks: how many an SM should hold, which bounds a thread's registers.
template <int M, int N, int WarpsM, int WarpsN, int Stages, int Blocks> struct MmaTile {
  static constexpr int kM = M, kN = N, kWarpsN = WarpsN, kStages = Stages, kBlocks = Blocks;
  static constexpr int kThreads = 32 * WarpsM * WarpsN, kWarpM = M / WarpsM, kWarpN = N / WarpsN;
};

// A slice of kRows of an operand in shared memory.
template <class T, int kRows, bool kAlongK> struct Slice {
  static constexpr int kK = kSliceBytes / int(sizeof(T)), kBytes = kRows * kSliceBytes;
  static constexpr int kLineBytes = kAlongK ? kSliceBytes : kRows * int(sizeof(T)), kLines = kBytes / kLineBytes;

  // Where byte `at` of a line is. ldmatrix reads eight lines at one chunk, and 32-bit loads four at two neighbours.
  static __device__ __forceinline__ uint32_t place(int line, int at) {
    int exchange = kLineBytes == 64 ? line / 2 % 4 : !kAlongK && sizeof(T) == 4 ? line % 4 * 2 : line % 8;
    return line * kLineBytes + ((at / 16 ^ exchange) * 16 + at % 16);
  }

  // This lane's part of the address of fragments: the first 16 of a warp's rows, the first 32 bytes of k.
  static __device__ __forceinline__ uint32_t lane_place(int first_row, bool as_b) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    const int row = (as_b ? high : low) * 8, k = as_b ? low : high;  // of the 8 x 16 bytes whose addresses it supplies
    if constexpr (kAlongK) return place(first_row + row + lane % 8, k * 16);
    else if constexpr (sizeof(T) == 2) return place(k * 8 + lane % 8, (first_row + row) * 2);
    else return place(lane % 4, (first_row + lane / 4) * 4);
  }
  // Fragment `block` of the warp's rows and `step` along k. The bits that are exchanged are zeros before.
  static __device__ __forceinline__ void load(uint32_t (&f)[4], uint32_t slice, uint32_t lane_place, int block,
                                              int step, bool as_b) {
    if constexpr (kAlongK) {
      ldmatrix(f, slice + (lane_place ^ (step * 32)) + block * 16 * kLineBytes);
    } else if constexpr (sizeof(T) == 2) {
      ldmatrix_transposed(f, slice + (lane_place ^ (block * 32)) + step * 16 * kLineBytes);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int row = as_b ? w / 2 : w % 2, k = as_b ? w % 2 : w / 2;
        f[w] = load_shared(slice + (lane_place ^ (block * 64 + row * 32)) + (step * 8 + k * 4) * kLineBytes);
      }
    }
  }
};

// Moves an operand's slices to shared memory, a thread its share. Vectors have 16 bytes where kWide, else as many as
// the operand says: 2-byte ones go through registers, between start() and finish().
template <class T, int kRows, int kThreads, bool kAlongK, bool kWide> class Gather {
 public:
  using Slice = minidnn::Slice<T, kRows, kAlongK>;
  static constexpr int kRowEntries = kAlongK ? kRows : 0;  // that all threads look up

  // Before a barrier and after it. Where kWide, `rows` is of no more use then.
  __device__ void prepare(const GatherIndex& index, const GatherOperand& o, uint32_t first_row, GatherEntry* rows) {
    width_ = kWide ? 16 : o.width;
    rows_ = rows;
    if constexpr (kAlongK) {
      for (int r = threadIdx.x; r < kRows; r += kThreads) rows[r] = row_entry(index, o, sizeof(T), first_row + r);
    } else {
      const uint32_t unit = threadIdx.x & (Slice::kLineBytes / width_ - 1);
      kept_[0] = row_entry(index, o, sizeof(T), first_row + unit * (width_ / uint32_t(sizeof(T))));
    }
  }
  __device__ void begin(const char* data) {
    data_ = reinterpret_cast<int64_t>(data);
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if constexpr (kAlongK) kept_[i] = rows_[threadIdx.x / 4 + i * (kThreads / 4)];
      kept_[i].offset += data_;
    }
  }

  __device__ void start(uint32_t slice, const GatherEntry* k) {
    if constexpr (kWide) {
      copy<16>(slice, k);
    } else {
      if (width_ == 16) copy<16>(slice, k);
      else if (width_ == 8) copy<8>(slice, k);
      else if (sizeof(T) == 4 || width_ == 4) copy<4>(slice, k);
      else load_elements(k);
    }
  }
  __device__ void finish(uint32_t slice, const GatherEntry* k) {
    if constexpr (kElements)
      if (width_ == 2)
        each<2>(k, [&](int i, int line, int at, const char*, uint32_t) {
          store_shared(slice + Slice::place(line, at), element_[i]);
        });
  }

 private:
  static constexpr bool kElements = !kWide && sizeof(T) == 2;
  static constexpr int kKept = !kAlongK ? 1 : kWide ? kRows / (kThreads / 4) : 0;  // a vector of rows; its rows

  template <int kWidth> __device__ __forceinline__ void copy(uint32_t slice, const GatherEntry* k) {
    each<kWidth>(k, [&](int, int line, int at, const char* from, uint32_t nothing) {
      cp_async<kWidth>(slice + Slice::place(line, at), from, nothing);
    });
  }
  __device__ __forceinline__ void load_elements(const GatherEntry* k) {
    if constexpr (kElements)
      each<2>(k, [&](int i, int, int, const char* from, uint32_t nothing) {
        element_[i] = nothing ? uint16_t(0) : *reinterpret_cast<const uint16_t*>(from);
      });
  }
  // Calls f(i, line, at, from, nothing) for this thread's vectors.
  template <int kWidth, class F> __device__ __forceinline__ void each(const GatherEntry* k, F&& f) {
    constexpr int kPerLine = Slice::kLineBytes / kWidth, kStep = kThreads / kPerLine, kCount = Slice::kLines / kStep;
    static_assert(kThreads % kPerLine == 0 && kStep * kCount == Slice::kLines);
    const int unit = threadIdx.x % kPerLine, first = threadIdx.x / kPerLine;
    GatherEntry fixed = kAlongK ? k[kWide ? unit : unit * (kWidth / int(sizeof(T)))] : kept_[0];
    if (kAlongK && !kWide) fixed.offset += data_;
    constexpr int kAtOnce =
        kCount < 8 ? kCount : 8;  // entries are read first: what f() does to memory would come between
#pragma unroll
    for (int i = 0; i < kCount; i += kAtOnce) {
      GatherEntry moving[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int line = first + (i + j) * kStep;
        moving[j] = !kAlongK ? k[line] : kWide ? kept_[i + j] : rows_[line];
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        f(i + j, first + (i + j) * kStep, unit * kWidth, reinterpret_cast<const char*>(fixed.offset + moving[j].offset),
          fixed.mask & moving[j].mask);
    }
  }

  int64_t data_;
  const GatherEntry* rows_;
  GatherEntry kept_[kKept ? kKept : 1];  // their offsets are addresses
  uint32_t width_;
  uint16_t element_[kElements ? Slice::kBytes / 2 / kThreads : 1];
};

// Which part of which product a block computes.
struct MmaBlock {
  const MmaPhase& phase;
  uint32_t batch, split, m, n;  // m and n count tiles
};
__device__ __forceinline__ MmaBlock mma_block(const MmaParams& p) {
  constexpr uint32_t kGroup = 16;  // tiles of m that are walked together over all of n: they share operands in the L2
  int f = 0;
  for (int i = 1; i < kMaxPhases; ++i)
    if (i < p.phases && blockIdx.x >= p.phase[i].first_block) f = i;
  const MmaPhase& phase = p.phase[f];
  const uint32_t per_matrix = phase.tiles_m * phase.tiles_n, index = blockIdx.x - phase.first_block;
  const uint32_t matrix = index / per_matrix, split = matrix / phase.batch.size;
  const uint32_t tile = index - matrix * per_matrix, per_group = kGroup * phase.tiles_n, group = tile / per_group;
  const uint32_t rows = min_of(kGroup, phase.tiles_m - group * kGroup), in_group = tile - group * per_group;
  const uint32_t n = in_group / rows;
  return {phase, matrix - split * phase.batch.size, split, group * kGroup + in_group - n * rows, n};
}

// A fragment as products take it: the words as they are, float32 rounded to TF32, or (kProducts == 3) float32 as a sum
// of two TF32 numbers. What the second would be of Inf and NaN is left out, so that Inf times a number stays Inf.
template <class T, int kProducts> struct Factor {
  uint32_t high[4], low[kProducts == 3 ? 4 : 1];

  __device__ __forceinline__ void set(const uint32_t (&f)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = f[i];
      if constexpr (sizeof(T) == 4) {
        const float v = __uint_as_float(f[i]);
        high[i] = to_tf32(v);
        if constexpr (kProducts == 3) {
          const bool finite = (high[i] & 0x7f800000) != 0x7f800000;
          low[i] = finite ? to_tf32(v - __uint_as_float(high[i])) : 0;
        }
      }
    }
  }
};

// A warp's sums: 16 rows by 8 columns in four of them.
template <class Tile> struct Sums {
  static constexpr int kBlocks = Tile::kWarpM / 16, kCount = Tile::kWarpN / 2;
  float of[kBlocks][kCount] = {};

  __device__ __forceinline__ void add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int e = 0; e < kCount; ++e) of[i][e] += other.of[i][e];
  }
};

// What a warp reads of a slice: fragments for one step along k, and for the next.
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

// sums += a b for one step.
template <class T, int kProducts, class Tile, class F>
__device__ __forceinline__ void multiply(Sums<Tile>& sums, const F& f, int step) {
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
          mma<T>(to, a[i].low, b.high[2 * half], b.high[2 * half + 1]);
          mma<T>(to, a[i].high, b.low[2 * half], b.low[2 * half + 1]);
        }
        mma<T>(to, a[i].high, b.high[2 * half], b.high[2 * half + 1]);
      }
  }
}

template <class T, class Tile, int kProducts, bool kAAlongK, bool kBAlongK, bool kWide>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    mma_gather(const __grid_constant__ MmaParams p, const __grid_constant__ GemmArgs args) {
  using GatherA = Gather<T, Tile::kM, Tile::kThreads, kAAlongK, kWide>;
  using GatherB = Gather<T, Tile::kN, Tile::kThreads, kBAlongK, kWide>;
  using SliceA = typename GatherA::Slice;
  using SliceB = typename GatherB::Slice;
  constexpr int kStages = Tile::kStages, kK = SliceA::kK, kStageBytes = SliceA::kBytes + SliceB::kBytes;
  // Shared memory: the ring, entries of k, entries of rows. Where these are read only at first, they lie in the ring.
  constexpr KGroup kGroup(kAAlongK, kBAlongK, kWide, sizeof(T), Tile::kThreads);
  char* const memory = dynamic_shared();
  const uint32_t ring = shared_address(memory);
  GatherEntry* const entries_a = reinterpret_cast<GatherEntry*>(memory + kStages * kStageBytes);
  GatherEntry* const entries_b = entries_a + 2 * kGroup.slices * kGroup.a;
  GatherEntry* const rows = kWide ? reinterpret_cast<GatherEntry*>(memory) : entries_b + 2 * kGroup.slices * kGroup.b;

  const MmaBlock block = mma_block(p);
  const MmaPhase& v = block.phase;
  const uint32_t first_slice = block.split * p.slices_per_split;
  const int slices = int(min_of(p.slices_per_split, ceil_div(v.k.size, uint32_t(kK)) - first_slice));
  auto look_up = [&](int slice) {  // the group that begins with `slice`
    const bool is_b = threadIdx.x >= kGroup.first_b;
    const int i = threadIdx.x - (is_b ? kGroup.first_b : 0), count = is_b ? kGroup.b : kGroup.a;
    if (i >= kGroup.slices * count) return;
    const uint32_t k = (first_slice + slice) * kK + i * (is_b ? kK / kGroup.b : kK / kGroup.a);
    GatherEntry* const group = (is_b ? entries_b : entries_a) + slice % (2 * kGroup.slices) * count;
    group[i] = k_entry(v.k, is_b ? v.b : v.a, sizeof(T), k);
  };
  const Digits batch = v.batch.digits(block.batch);
  auto data = [&](const GatherOperand& o, const void* at) {
    return static_cast<const char*>(at) + (o.offset + offset_of(o.batch, batch)) * int64_t(sizeof(T));
  };

  GatherA a;
  GatherB b;
  a.prepare(v.m, v.a, block.m * Tile::kM, rows);
  b.prepare(v.n, v.b, block.n * Tile::kN, rows + GatherA::kRowEntries);
  look_up(0);
  __syncthreads();
  a.begin(data(v.a, args.a));
  b.begin(data(v.b, args.b));

  const int warp = threadIdx.x / 32;
  const uint32_t lane_a = SliceA::lane_place(warp / Tile::kWarpsN * Tile::kWarpM, false);
  const uint32_t lane_b = SliceB::lane_place(warp % Tile::kWarpsN * Tile::kWarpN, true);
  Sums<Tile> sums;
  Fragments<Tile, SliceA, SliceB> fragments;
  uint32_t from = ring, to = ring;
  auto advance = [&](uint32_t& stage) {
    stage = stage + kStageBytes < ring + kStages * kStageBytes ? stage + kStageBytes : ring;
  };
  // A slice is fetched kStages - 1 rounds before it is multiplied; a group of entries is looked up when the one before
  // it is first read.
#pragma unroll 1
  for (int slice = 1 - kStages; slice < slices; ++slice) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // all see this slice and its entries, and are done with the slice before
    const int next = slice + kStages - 1;
    const int slot = next % (2 * kGroup.slices);
    const GatherEntry *k_a = entries_a + slot * kGroup.a, *k_b = entries_b + slot * kGroup.b;
    if (slice >= 0) fragments.load(from, lane_a, lane_b, 0);
    if (next < slices) a.start(to, k_a), b.start(to + SliceA::kBytes, k_b);
    cp_async_commit();
    if (next % kGroup.slices == 0) look_up(next + kGroup.slices);
    if (slice >= 0) {
      constexpr int kSteps = kSliceBytes / kFragmentBytes;
      // Tensor cores cut off what they add instead of rounding it, a bias that grows with k: too much for the three
      // products of float32, which are added up for a slice and then rounded into the sums.
      Sums<Tile> parts;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) fragments.load(from, lane_a, lane_b, step + 1);
        multiply<T, kProducts>(kProducts == 3 ? parts : sums, fragments, step);
      }
      if (kProducts == 3) sums.add(parts);
      advance(from);
    }
    if (next < slices) a.finish(to, k_a), b.finish(to + SliceA::kBytes, k_b);
    advance(to);
  }

  cp_async_wait<0>();
  __syncthreads();  // the ring is free
  using Epilogue = StagedEpilogue<T, Tile::kWarpN>;
  static_assert(Tile::kThreads / 32 * Epilogue::kWords * sizeof(float) <= kStages * kStageBytes);
  GemmArgs out = args;
  if (p.part_stride) out.y = static_cast<float*>(args.y) + block.split * p.part_stride;
  const uint32_t m = block.m * Tile::kM + warp / Tile::kWarpsN * Tile::kWarpM;
  const uint32_t n = block.n * Tile::kN + warp % Tile::kWarpsN * Tile::kWarpN;
  const Epilogue epilogue(v.y, out, p.activation, p.y_is_float32, block.batch, n,
                          reinterpret_cast<float*>(memory) + warp * Epilogue::kWords);
#pragma unroll 1  // the code is long enough once: it stores the first 16 rows, then the others move up
  for (int i = 0; i < Tile::kWarpM / 16; ++i) {
    epilogue.store(sums.of[0], m + 16 * i);
#pragma unroll
    for (int j = 0; j + 1 < Tile::kWarpM / 16; ++j)
#pragma unroll
      for (int e = 0; e < Tile::kWarpN / 2; ++e) sums.of[j][e] = sums.of[j + 1][e];
  }
}

}  // namespace minidnn
