// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions on tensor cores with mma.sync (sm_80 and later), for operands of any strides:
// y = epilogue(sum over k of a[m, k] b[n, k]), see view.h.
// A block computes one tile of y, with sums in registers. cp.async gathers the elements that a GemmView describes:
// slices of 64 bytes along k pass through a ring in shared memory. Index arithmetic is in mma_params.h. Shapes are
// run-time values. Compile-time parameters are the tile, the dtype and, for each operand, whether its vectors are
// contiguous along k or along its rows.
//
// A slice in shared memory has lines of vectors in the order of global memory: 64 bytes of k for each row, or all rows
// for each k. Chunks of 16 bytes are permuted within a line (place()); neither cp.async nor the loads of fragments then
// have bank conflicts.
#include "cuda/device/fragment.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/gemm/epilogue/staged.cuh"
#include "cuda/gemm/mma/mma_params.h"

namespace minidnn {

// kBlocks: blocks that an SM should hold, which limits the registers of a thread.
template <int M, int N, int WarpsM, int WarpsN, int Stages, int Blocks> struct MmaTile {
  static constexpr int kM = M, kN = N, kWarpsN = WarpsN, kStages = Stages, kBlocks = Blocks;
  static constexpr int kThreads = 32 * WarpsM * WarpsN, kWarpM = M / WarpsM, kWarpN = N / WarpsN;
};

// A slice of kRows rows of an operand in shared memory.
template <class T, int kRows, bool kAlongK> struct Slice {
  static constexpr int kK = kSliceBytes / int(sizeof(T)), kBytes = kRows * kSliceBytes;
  static constexpr int kLineBytes = kAlongK ? kSliceBytes : kRows * int(sizeof(T)), kLines = kBytes / kLineBytes;

  // The offset of byte `at` of a line; eight lines later it is 8 kLineBytes more. ldmatrix_x4 reads one chunk of eight
  // lines; 32-bit loads read two neighbouring chunks of four lines.
  static __device__ __forceinline__ uint32_t place(int line, int at) {
    int exchange = kLineBytes == 64 ? line / 2 % 4 : !kAlongK && sizeof(T) == 4 ? line % 4 * 2 : line % 8;
    return line * kLineBytes + ((at / 16 ^ exchange) * 16 + at % 16);
  }

  // This lane's offset in a slice for the first fragment: the first 16 rows of a warp, the first 32 bytes of k.
  static __device__ __forceinline__ uint32_t lane_place(int first_row, bool as_b) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    // of the matrix (8 rows x 16 bytes) whose addresses this lane passes
    const int row = (as_b ? high : low) * 8, k = as_b ? low : high;
    if constexpr (kAlongK) return place(first_row + row + lane % 8, k * 16);
    else if constexpr (sizeof(T) == 2) return place(k * 8 + lane % 8, (first_row + row) * 2);
    else return place(lane % 4, (first_row + lane / 4) * 4);
  }
  // Loads fragment `block` of the warp's rows at step `step` along k. The XOR works because the bits that it sets are 0
  // in the unpermuted offset.
  static __device__ __forceinline__ void load(uint32_t (&f)[4], uint32_t slice, uint32_t lane_place, int block,
                                              int step, bool as_b) {
    if constexpr (kAlongK) {
      ldmatrix_x4(f, slice + (lane_place ^ (step * 32)) + block * 16 * kLineBytes);
    } else if constexpr (sizeof(T) == 2) {
      ldmatrix_x4_trans(f, slice + (lane_place ^ (block * 32)) + step * 16 * kLineBytes);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int row = as_b ? w / 2 : w % 2, k = as_b ? w % 2 : w / 2;
        f[w] = ld_shared_b32(slice + (lane_place ^ (block * 64 + row * 32)) + (step * 8 + k * 4) * kLineBytes);
      }
    }
  }
};

// The state of the slice that is fetched next: the offsets that its first k adds in both operands, and its tap.
struct Walk {
  int64_t a, b;
  uint32_t mask_a, mask_b;  // those of k
  uint32_t left;            // k left from this slice on
  GemmCoordinates32 at;
  uint32_t inner_left;  // slices until digit 2 changes, including this one

  template <class T> __device__ __forceinline__ void begin(const MmaParams& p, uint32_t first_slice) {
    constexpr uint32_t kK = kSliceBytes / sizeof(T);
    at = p.k.coordinates(first_slice * kK);
    a = offset_of(p.a.k, at) * int64_t(sizeof(T));
    b = offset_of(p.b.k, at) * int64_t(sizeof(T));
    left = p.k.size - first_slice * kK;
    inner_left = p.inner_slices - (p.inner_slices < kNoCarry ? at.at[3] / kK : 0);
    find_masks(p);
  }
  template <class T> __device__ __forceinline__ void advance(const MmaParams& p) {
    left -= kSliceBytes / sizeof(T);
    if (--inner_left > 0) {
      a += p.a.advance[3];
      b += p.b.advance[3];
      return;
    }
    inner_left = p.inner_slices;
    if (++at.at[2] < p.k.by[1].divisor) {
      a += p.a.advance[2];
      b += p.b.advance[2];
    } else {
      at.at[2] = 0;
      if (++at.at[1] < p.k.by[0].divisor) {
        a += p.a.advance[1];
        b += p.b.advance[1];
      } else {
        at.at[1] = 0;
        ++at.at[0];
        a += p.a.advance[0];
        b += p.b.advance[0];
      }
    }
    find_masks(p);
  }

 private:
  __device__ __forceinline__ void find_masks(const MmaParams& p) {
    mask_a = kKExists | (p.a.window.on ? tap_bits(p.a.window, at) : 0);
    mask_b = kKExists | (p.b.window.on ? tap_bits(p.b.window, at) : 0);
  }
};

// The k side of a slice of one operand. With a table: its entries. Without: the offset of its first k, the mask of all
// its k, and the number of k from here on.
struct SliceAt {
  const GatherEntry* entries;
  int64_t offset;
  uint32_t mask, left;
};

// Copies an operand's slices to shared memory; each thread copies some vectors. A vector has 16 bytes if kWide, else
// o.width bytes. Vectors of 2 bytes pass through registers: start() loads them, finish() stores them one iteration
// later.
template <class T, int kRows, int kThreads, bool kAlongK, bool kWide> class Gather {
 public:
  using Slice = minidnn::Slice<T, kRows, kAlongK>;
  // Entries that the threads of a block share: those of rows, and those of k for one slice if there is a table.
  static constexpr int kRowEntries = kAlongK ? kRows : 0, kKEntries = kAlongK && kWide ? kSliceBytes / 16 : Slice::kK;

  // prepare() is called before a barrier, begin() after it. If kWide, `rows` is not used after begin().
  __device__ __forceinline__ void prepare(const GatherIndex& index, const GatherOperand& o, uint32_t first_row,
                                          GatherEntry* rows) {
    width_ = kWide ? 16 : o.width;
    rows_ = rows;
    if constexpr (kAlongK) {
      for (int r = threadIdx.x; r < kRows; r += kThreads) rows[r] = row_entry(index, o, sizeof(T), first_row + r);
    } else {
      const uint32_t per_line = Slice::kLineBytes / width_, across = kWide ? per_line : min_of(per_line, 32u);
#pragma unroll
      for (uint32_t u = 0; u < kKept; ++u) {
        const uint32_t unit = (threadIdx.x & (across - 1)) + u * across;
        if (unit < per_line)
          kept_[u] = row_entry(index, o, sizeof(T), first_row + unit * (width_ / uint32_t(sizeof(T))));
      }
    }
  }
  __device__ __forceinline__ void begin(const char* data) {
    data_ = reinterpret_cast<int64_t>(data);
    if constexpr (kAlongK && kWide)
#pragma unroll
      for (int r = 0; r < kKept; ++r) kept_[r] = rows_[Vectors<16>::line(r)];
  }

  __device__ __forceinline__ void start(uint32_t slice, const GatherOperand& o, const SliceAt& at) {
    if constexpr (kWide) {
      copy<16>(slice, o, at);
    } else {
      if (width_ == 16) copy<16>(slice, o, at);
      else if (width_ == 8) copy<8>(slice, o, at);
      else if (sizeof(T) == 4 || width_ == 4) copy<4>(slice, o, at);
      else if constexpr (sizeof(T) == 2)
        each<2>(o, at, [&](int u, int r, const char* from, bool exists) {
          element_[u][r] = exists ? *reinterpret_cast<const uint16_t*>(from) : uint16_t(0);
        });
    }
  }
  __device__ __forceinline__ void finish(uint32_t slice) {
    if constexpr (kElements)
      if (width_ == 2)
#pragma unroll
        for (int u = 0; u < Vectors<2>::kU; ++u)
#pragma unroll
          for (int r = 0; r < Vectors<2>::kR; ++r) st_shared_b16(slice + Vectors<2>::place(u, r), element_[u][r]);
  }

 private:
  static constexpr bool kElements = !kWide && sizeof(T) == 2;
  // This thread's vectors: kU along a line, in kR lines.
  template <int kWidth> struct Vectors {
    static constexpr int kPerLine = Slice::kLineBytes / kWidth, kMost = kAlongK ? 8 : 32;
    static constexpr int kAcross = kWide || kPerLine < kMost ? kPerLine : kMost, kDown = kThreads / kAcross;
    static constexpr int kU = kPerLine / kAcross, kR = Slice::kLines / kDown;
    static_assert(kThreads % kAcross == 0 && kU * kAcross == kPerLine && kR * kDown == Slice::kLines && kR > 0);
    static __device__ __forceinline__ int unit(int u) { return threadIdx.x % kAcross + u * kAcross; }
    static __device__ __forceinline__ int line(int r) { return threadIdx.x / kAcross + r * kDown; }
    static __device__ __forceinline__ uint32_t place(int u, int r) {
      if constexpr (kDown % 8 == 0)  // the permutation is the same in all lines
        return Slice::place(line(0), unit(u) * kWidth) + r * kDown * Slice::kLineBytes;
      else return Slice::place(line(r), unit(u) * kWidth);
    }
  };
  // Entries kept in registers: those of rows if kAlongK, else those of vectors of rows.
  static constexpr int kKept = kAlongK ? (kWide ? Vectors<16>::kR : 1) : kWide ? 1 : 4;

  template <int kWidth>
  __device__ __forceinline__ void copy(uint32_t slice, const GatherOperand& o, const SliceAt& at) {
    each<kWidth>(o, at, [&](int u, int r, const char* from, bool exists) {
      cp_async<kWidth, true>(slice + Vectors<kWidth>::place(u, r), from, exists);
    });
  }

  // Calls f(u, r, from, exists) for this thread's vectors. All entries are read before the first call; otherwise the
  // memory accesses of f() would separate the reads.
  template <int kWidth, class F>
  __device__ __forceinline__ void each(const GatherOperand& o, const SliceAt& at, F&& f) {
    using V = Vectors<kWidth>;
    constexpr int kKs = kAlongK ? V::kU : V::kR, kOfRows = kAlongK ? V::kR : V::kU;
    static_assert(kAlongK || kOfRows <= kKept);
    GatherEntry k[kKs], row[kOfRows];
#pragma unroll
    for (int i = 0; i < kOfRows; ++i) row[i] = kAlongK && !kWide ? rows_[V::line(i)] : kept_[i < kKept ? i : 0];
    const int first = kAlongK ? V::unit(0) * (kWidth / int(sizeof(T))) : V::line(0);  // first k, counted in the slice
    constexpr int kStep = kAlongK ? V::kAcross * (kWidth / int(sizeof(T))) : V::kDown;
    if (o.table) {
#pragma unroll
      for (int i = 0; i < kKs; ++i) k[i] = at.entries[kAlongK && kWide ? V::unit(i) : first + i * kStep];
    } else {
#pragma unroll
      for (int i = 0; i < kKs; ++i)
        k[i] = {at.offset + (first + i * kStep) * o.k_step, first + i * kStep < at.left ? at.mask : kNothing};
    }
#pragma unroll
    for (int i = 0; i < kKs; ++i) k[i].offset += data_;
#pragma unroll
    for (int u = 0; u < V::kU; ++u)
#pragma unroll
      for (int r = 0; r < V::kR; ++r) {
        const GatherEntry &of_row = row[kAlongK ? r : u], &of_k = k[kAlongK ? u : r];
        f(u, r, reinterpret_cast<const char*>(of_row.offset + of_k.offset), (of_row.mask & of_k.mask) == 0);
      }
  }

  int64_t data_;
  const GatherEntry* rows_;
  GatherEntry kept_[kKept];
  uint32_t width_;
  using Elements = Vectors<kElements ? 2 : 16>;
  uint16_t element_[kElements ? Elements::kU : 1][kElements ? Elements::kR : 1];
};

// The tile, split and batch that a block computes; m and n count tiles.
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

// A fragment as input to mma.sync: 16-bit words unchanged, float32 rounded to TF32, or (kProducts == 3) float32 as the
// sum high + low of two TF32 numbers. low is 0 for Inf and NaN. Known limit: Inf times a number is NaN if the number's
// low part is 0 or has the opposite sign of the number. Excluding Inf from these products would take more registers
// than there are.
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

// The fragments that a warp reads from a slice: those of one step along k, and those of the next.
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

// sums += a b for one step along k.
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

template <class T, class Tile, int kProducts, bool kAAlongK, bool kBAlongK, bool kWide>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    mma_gather(const __grid_constant__ MmaParams p, const __grid_constant__ GemmArgs args) {
  using GatherA = Gather<T, Tile::kM, Tile::kThreads, kAAlongK, kWide>;
  using GatherB = Gather<T, Tile::kN, Tile::kThreads, kBAlongK, kWide>;
  using SliceA = typename GatherA::Slice;
  using SliceB = typename GatherB::Slice;
  using Epilogue = StagedEpilogue<T, Tile::kWarpM, Tile::kWarpN>;
  constexpr int kStages = Tile::kStages, kK = SliceA::kK, kStageBytes = SliceA::kBytes + SliceB::kBytes;
  constexpr int kRingBytes = kStages * kStageBytes;
  static_assert(kStages >= 3, "elements arrive a round after they were asked for, and are seen after the next barrier");
  static_assert(Tile::kThreads / 32 * Epilogue::kBytes <= kRingBytes);
  griddep_launch_dependents();

  // Shared memory: the ring; the rows of y; the entries of rows; the entries of k for two groups of slices. If kWide,
  // the entries of rows are read only before the main loop and are stored in the ring.
  char* const memory = dynamic_shared();
  const uint32_t ring = cvta_to_shared(memory);
  OutRow* const out_rows = reinterpret_cast<OutRow*>(memory + kRingBytes);
  GatherEntry* const after_rows = reinterpret_cast<GatherEntry*>(out_rows + Tile::kM);
  GatherEntry* const rows = kWide ? reinterpret_cast<GatherEntry*>(memory) : after_rows;
  GatherEntry* const entries_a = after_rows + (kWide ? 0 : GatherA::kRowEntries + GatherB::kRowEntries);
  constexpr int kEntriesA = GatherA::kKEntries, kEntriesB = GatherB::kKEntries;
  GatherEntry* const entries_b = entries_a + (p.a.table ? 2 * p.group_slices * kEntriesA : 0);

  const MmaBlock block = mma_block(p);
  const uint32_t first_slice = block.split * p.slices_per_split;
  const int slices = int(min_of(p.slices_per_split, ceil_div(p.k.size, uint32_t(kK)) - first_slice));
  auto look_up = [&](int slice) {  // looks up the entries of the group that begins with `slice`
    const uint32_t first_k = (first_slice + slice) * kK, group = slice & (2 * p.group_slices - 1), i = threadIdx.x;
    if (p.a.table && i < p.group_slices * kEntriesA)
      entries_a[group * kEntriesA + i] = k_entry(p.k, p.a, sizeof(T), first_k + i * (kK / kEntriesA));
    const uint32_t j = threadIdx.x - p.first_b;
    if (p.b.table && j < p.group_slices * kEntriesB)
      entries_b[group * kEntriesB + j] = k_entry(p.k, p.b, sizeof(T), first_k + j * (kK / kEntriesB));
  };
  const GemmCoordinates32 batch = p.batch.coordinates(block.batch);
  auto data = [&](const GatherOperand& o, const void* at) {
    return static_cast<const char*>(at) + (o.offset + offset_of(o.batch, batch)) * int64_t(sizeof(T));
  };

  GatherA a;
  GatherB b;
  a.prepare(p.m, p.a, block.m * Tile::kM, rows);
  b.prepare(p.n, p.b, block.n * Tile::kN, rows + GatherA::kRowEntries);
  if (p.group_slices) look_up(0);
  __syncthreads();
  a.begin(data(p.a, args.a));
  b.begin(data(p.b, args.b));
  Walk walk;
  walk.begin<T>(p, first_slice);

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / Tile::kWarpsN * Tile::kWarpM, warp_n = warp % Tile::kWarpsN * Tile::kWarpN;
  const uint32_t lane_a = SliceA::lane_place(warp_m, false), lane_b = SliceB::lane_place(warp_n, true);
  typename Epilogue::Sums sums;
  Fragments<Tile, SliceA, SliceB> fragments;
  uint32_t from = ring, to = ring, before = ring;
  auto next_stage = [&](uint32_t& stage) {
    stage = stage + kStageBytes < ring + kRingBytes ? stage + kStageBytes : ring;
  };
  // A slice is fetched kStages - 1 iterations before it is multiplied. The entries of a group are looked up when those
  // of the previous group are first read.
#pragma unroll 1
  for (int slice = 1 - kStages; slice < slices; ++slice) {
    cp_async_wait_group<kStages - 2>();
    __syncthreads();  // this slice and its entries are visible to all threads; all have finished the previous slice
    if (slice >= 0) fragments.load(from, lane_a, lane_b, 0);
    const int next = slice + kStages - 1, slot = next & (2 * p.group_slices - 1);
    if (next > 0 && next <= slices) {
      a.finish(before);
      b.finish(before + SliceA::kBytes);
    }
    if (next < slices) {
      a.start(to, p.a, {entries_a + slot * kEntriesA, walk.a, walk.mask_a, walk.left});
      b.start(to + SliceA::kBytes, p.b, {entries_b + slot * kEntriesB, walk.b, walk.mask_b, walk.left});
      walk.advance<T>(p);
    }
    cp_async_commit_group();
    if (p.group_slices && (next & (p.group_slices - 1)) == 0) look_up(next + p.group_slices);
    if (slice >= 0) {
      constexpr int kSteps = kSliceBytes / kFragmentBytes;
      // Tensor cores truncate their additions instead of rounding them. The error is biased and grows with k, too much
      // for the three products of float32. These are therefore summed over one slice and then added to the sums with
      // rounding.
      typename Epilogue::Sums parts;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) fragments.load(from, lane_a, lane_b, step + 1);
        multiply<T, kProducts>(kProducts == 3 ? parts : sums, fragments, step);
      }
      if constexpr (kProducts == 3) sums.each([&](float& v, int i, int e) { v += parts.of[i][e]; });
      next_stage(from);
    } else if (slice == -1) {  // while the first slices are in flight
      for (int r = threadIdx.x; r < Tile::kM; r += Tile::kThreads) out_rows[r] = out_row(p.y, block.m * Tile::kM + r);
    }
    before = to;
    next_stage(to);
  }

  cp_async_wait_group<0>();
  __syncthreads();  // the ring is free
  void* y = args.y;
  if (p.part_stride) y = static_cast<float*>(y) + block.split * p.part_stride;
  Epilogue(p.y, args, y, p.activation, p.y_is_float32, block.batch, block.m * Tile::kM + warp_m,
           block.n * Tile::kN + warp_n, memory + warp * Epilogue::kBytes, out_rows + warp_m)
      .store(sums);
  griddep_wait();
}

}  // namespace minidnn
