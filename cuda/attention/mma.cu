// SPDX-License-Identifier: Apache-2.0
// cuda.attention.mma: attention forward and decode on tensor cores with mma.sync (sm_80 and later), for float16,
// bfloat16, and float32 with TF32 products. The scheme is that of FlashAttention-2 (Dao 2023): the columns of a tile of
// rows are read once, and the softmax is computed along the way.
// Grid: x is a tile of rows of some heads, y is a part of its columns. Block: 2 or 4 warps. A warp keeps the sums of its
// rows in registers. For few rows (decode), all warps have the same 16 rows and divide the columns.
// Shared memory: the rows of q, and one or two tiles of k and v, filled by cp.async while others are multiplied.
// Bytes: each block reads k and v of its columns, mostly from the L2.
// Numerics: scores, sums and exponentials are float32. Probabilities are rounded to T before they are multiplied by v.
// Factors of type float32 are rounded to TF32.
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/tiles.cuh"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/cvta.cuh"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {
namespace {

// A row in shared memory has groups of 128 bytes. An XOR permutes the 16-byte chunks of a group, which avoids bank
// conflicts.
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk, int pitch) {
  return row * pitch + chunk / 8 * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

// Copies rows of `size` elements to shared memory, and fills the rest of the rows, and all rows but the first `count`,
// with zeros. A thread copies every kStep-th row: address(i, r) is that of its i-th row, which is row r of the tile.
template <class T, int kRows, int kPitch, int kThreads, class Address>
__device__ __forceinline__ void copy_rows(uint32_t to, int size, int count, Address address) {
  constexpr int kStep = kThreads / 8, kOfChunk = 16 / sizeof(T);
  const int first = threadIdx.x / 8, chunk = threadIdx.x % 8;
  to += chunk_offset(first, chunk, kPitch);
#pragma unroll
  for (int r = 0; r < kRows; r += kStep) {
    const void* const row = address(r / kStep, first + r);
    const char* const from = static_cast<const char*>(row) + 16 * chunk;
    const bool exists = first + r < count;
#pragma unroll
    for (int g = 0; g < kPitch / 128; ++g)
      cp_async_zfill<16>(to + r * kPitch + 128 * g, from + 128 * g,
                         exists && kOfChunk * (chunk + 8 * g) < size ? 16 : 0);
  }
}

// Rounds what this thread has copied to TF32 (tiles.cuh).
template <int kRows, int kPitch, int kThreads> __device__ __forceinline__ void round_rows(uint32_t tile) {
  tile += chunk_offset(threadIdx.x / 8, threadIdx.x % 8, kPitch);
#pragma unroll
  for (int r = 0; r < kRows; r += kThreads / 8)
#pragma unroll
    for (int g = 0; g < kPitch / 128; ++g) round_chunk(tile + r * kPitch + 128 * g);
}

// What a block computes: tile rows `first` on of some heads of a sequence, and the tiles of columns begin <= n < end.
struct AttentionWork {
  SequenceRows sequence;
  int32_t head, first, split;  // head: the first one
  IndexRange tiles;
};

__device__ __forceinline__ AttentionWork attention_work(const AttentionForwardParams& p, const AttentionArgs& a,
                                                        const AttentionTile& tile) {
  AttentionWork w;
  // Tiles with many columns come first.
  uint32_t n = blockIdx.x;
  uint32_t b = p.head_batches.divmod(n);
  w.head = p.heads.divmod(b) * int32_t(p.pack.divisor);
  w.first = (p.blocks - 1 - int32_t(n)) * tile.rows();
  w.split = int32_t(blockIdx.y);
  w.sequence = sequence_rows(p.scores, a, int32_t(b));
  const IndexRange rows{int32_t(p.pack.quotient(w.first)), int32_t(p.pack.quotient(w.first + tile.rows() - 1)) + 1};
  const IndexRange seen = columns_of_any(p.scores, w.sequence, rows);
  const int32_t begin = seen.begin / tile.columns, end = (seen.end + tile.columns - 1) / tile.columns;
  const int32_t part = max((end - begin + p.splits - 1) / p.splits, p.least_tiles);
  w.tiles.begin = begin + w.split * part;
  w.tiles.end = min(end, w.tiles.begin + part);
  return w;
}

// The row of q and the head of row r of a tile.
struct RowAndHead {
  int32_t row, head;
};
__device__ __forceinline__ RowAndHead row_and_head(const AttentionForwardParams& p, const AttentionWork& w, int32_t r) {
  uint32_t row = uint32_t(w.first + r);
  const int32_t head = p.pack.divmod(row);
  return {int32_t(row), w.head + head};
}
__device__ __forceinline__ int64_t row_offset(const AttentionStrides& t, const AttentionWork& w, RowAndHead at) {
  return w.sequence.b * t.batch + at.head * t.head + (w.sequence.q_first + at.row) * t.row;
}
// The row of lse; with AttentionPartials, also that of the sums.
__device__ __forceinline__ int64_t lse_row(const AttentionScoreParams& p, const AttentionWork& w, RowAndHead at) {
  return lse_row_of(p, w.sequence, at.head) + at.row;
}

// The rows of a tile of columns that a thread copies: their pages and their indices there, or, without pages, 0 and
// their indices in the sequence. Each is found once, for k and for v.
template <int kRows> struct ColumnPlaces {
  int32_t page[kRows], row[kRows];

  __device__ __forceinline__ ColumnPlaces(const AttentionForwardParams& p, const AttentionArgs& a,
                                          const AttentionWork& w, int32_t first, int32_t step, bool may_have_pages) {
    const int32_t* const pages = static_cast<const int32_t*>(a.pages) + int64_t(w.sequence.b) * p.pages_of_sequence;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      page[i] = 0;
      row[i] = first + i * step;
      if (may_have_pages && p.pages_of_sequence) {
        uint32_t n = uint32_t(min(row[i], w.sequence.kv_length - 1));
        row[i] = p.page_size.divmod(n);
        page[i] = clamped(pages[n], 0, p.pages - 1);
      }
    }
  }
};

// k or v of a head; without pages, of a sequence. Strides are in bytes.
template <class T> struct ColumnTensor {
  const char* first;
  int64_t page, row;

  __device__ __forceinline__ ColumnTensor(const AttentionForwardParams& p, const AttentionWork& w,
                                          const AttentionStrides& t, const void* data, bool may_have_pages)
      : page(t.batch * int(sizeof(T))), row(t.row * int(sizeof(T))) {
    int64_t at = int32_t(p.scores.group.quotient(w.head)) * t.head + w.sequence.kv_first * t.row;
    if (!may_have_pages || !p.pages_of_sequence) at += w.sequence.b * t.batch;
    first = static_cast<const char*>(data) + at * int(sizeof(T));
  }
};

__device__ __forceinline__ RowEnd row_end(const AttentionForwardParams& p, const AttentionArgs& a,
                                          const AttentionWork& w, RowAndHead at, float largest, float sum) {
  return row_end(p.scores, a, at.head, at.row < w.sequence.q_length, largest, sum);
}

// Stores partial sums, which are float32.
template <class T> __device__ __forceinline__ void store_partial(float* to, const LaneValues<T>& values) {
  using Sums = Vec<float, kLaneColumns<T>>;
  *reinterpret_cast<Sums*>(to) = Sums::pack(values);
}
// Stores four elements of o.
template <class T> __device__ __forceinline__ void store_four(T* to, const RowEnd& end, const float4& sums) {
  const float values[4] = {end.of(sums.x), end.of(sums.y), end.of(sums.z), end.of(sums.w)};
  Vec<T, 4>::pack(values).store(to);
}

// The scores and sums of a warp.
template <class T, AttentionTile kTile> struct AttentionWarp {
  static constexpr int kF = kTile.fragments, kScores = kTile.warp_columns() / 8, kValues = kTile.value / 8;
  static constexpr int kSteps = kTile.head * sizeof(T) / 32, kKPitch = kTile.k_pitch(), kVPitch = kTile.v_pitch();
  static constexpr bool kQInRegisters = kF * kSteps * 4 <= (kTile.along_columns || kIsFloat32<T> ? 64 : 32);
  static constexpr int kWarpRows = 16 * kF;
  using Rows = WeightedRows<T>;
  static_assert(kTile.bytes == sizeof(T));

  float o[kF][kValues][4];
  SoftmaxRows rows[kF];
  float s[kF][kScores][4];
  uint32_t q[kQInRegisters ? kSteps : 1][kF][4];
  uint32_t q_lane, k_lane, v_lane;  // from where this lane reads its fragments

  __device__ __forceinline__ static int warp() { return threadIdx.x / 32; }
  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int first_row() { return kTile.along_columns ? 0 : warp() * kWarpRows; }
  __device__ __forceinline__ static int first_column() {
    return kTile.along_columns ? warp() * kTile.warp_columns() : 0;
  }
  // The row of the tile of an element, and the column of element 0 of the first fragment in the tile.
  __device__ __forceinline__ static int row_of(int f, int half) { return first_row() + 16 * f + 8 * half + lane() / 4; }
  __device__ __forceinline__ static int column_of_lane() { return first_column() + 2 * (lane() % 4); }

  __device__ __forceinline__ explicit AttentionWarp(uint32_t shared) {
    const MatrixLane at(lane());
    q_lane = chunk_offset(8 * at.second + at.row, at.third, kKPitch) + shared + first_row() * kKPitch;
    k_lane = chunk_offset(8 * at.third + at.row, at.second, kKPitch) + first_column() * kKPitch;
    v_lane = chunk_offset(Rows::row_of(at), Rows::chunk_of(at), kVPitch) + first_column() * kVPitch;
#pragma unroll
    for (int f = 0; f < kF; ++f)
#pragma unroll
      for (int j = 0; j < kValues; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[f][j][e] = 0;
  }

  // 32 bytes of each row from byte 32 * step on. Rows begin at multiples of 128, so an XOR moves within a group.
  __device__ __forceinline__ static uint32_t along(uint32_t lane_offset, int step) {
    return (lane_offset ^ (step % 4 * 32)) + step / 4 * 128;
  }
  __device__ __forceinline__ void load_q(uint32_t (&to)[kF][4], int step) const {
#pragma unroll
    for (int f = 0; f < kF; ++f) ldmatrix_x4(to[f], along(q_lane, step) + f * 16 * kKPitch);
  }
  __device__ __forceinline__ void keep_q() {
    if constexpr (kQInRegisters)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) load_q(q[step], step);
  }

  // s = q k^T for the tile of k at the address `k`.
  __device__ __forceinline__ void multiply_k(uint32_t k) {
#pragma unroll
    for (int f = 0; f < kF; ++f)
#pragma unroll
      for (int j = 0; j < kScores; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[f][j][e] = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (!kQInRegisters) load_q(q[0], step);
#pragma unroll
      for (int j = 0; j < kScores; j += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, k + along(k_lane, step) + j * 8 * kKPitch);
#pragma unroll
        for (int f = 0; f < kF; ++f) {
          const uint32_t(&a)[4] = q[kQInRegisters ? step : 0][f];
          mma_sync<T>(s[f][j], a, b[0], b[1]);
          mma_sync<T>(s[f][j + 1], a, b[2], b[3]);
        }
      }
    }
  }

  // o += p v for the tile of v at the address `v`. The accumulators s are fragments of p.
  __device__ __forceinline__ void multiply_v(uint32_t v) {
#pragma unroll
    for (int j = 0; j < kScores; j += Rows::kWeights) {
      uint32_t p[kF][4];
#pragma unroll
      for (int f = 0; f < kF; ++f) Rows::round(p[f], &s[f][j]);
#pragma unroll
      for (int d = 0; d < kValues; d += Rows::kLoaded) {
        uint32_t b[Rows::kLoaded][2];
        Rows::load(b, v + along(v_lane, d * int(sizeof(T)) / 4) + j * 8 * kVPitch, kVPitch);
#pragma unroll
        for (int f = 0; f < kF; ++f)
#pragma unroll
          for (int i = 0; i < Rows::kLoaded; ++i) mma_sync<T>(o[f][d + i], p[f], b[i][0], b[i][1]);
      }
    }
  }

  // Hides the columns that rows do not see. `column` is the first column of the tile.
  __device__ __forceinline__ void hide(const AttentionForwardParams& p, const AttentionWork& w, int32_t column) {
#pragma unroll
    for (int f = 0; f < kF; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const IndexRange seen = columns_seen(p.scores, w.sequence, row_and_head(p, w, row_of(f, h)).row);
        hide_columns(s[f], h, seen, column + column_of_lane());
      }
  }

  // Replaces scores by exponentials, and scales the sums to the new maxima.
  __device__ __forceinline__ void exponentials(float c) {
    bool grown = false;
    float shrink[kF][2];
#pragma unroll
    for (int f = 0; f < kF; ++f) grown |= minidnn::exponentials<kTile.extras>(s[f], c, rows[f], shrink[f]);
    if (!grown) return;
#pragma unroll
    for (int f = 0; f < kF; ++f)
#pragma unroll
      for (int j = 0; j < kValues; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[f][j][e] *= shrink[f][e / 2];
  }
};

// What AttentionTile::extras adds. Tiles with extras have one fragment of rows.
template <class T, AttentionTile kTile>
__device__ __forceinline__ auto score_options(const AttentionForwardParams& p, const AttentionArgs& a,
                                              const AttentionWork& w) {
  using Warp = AttentionWarp<T, kTile>;
  static_assert(Warp::kF == 1);
  const RowAndHead first = row_and_head(p, w, Warp::row_of(0, 0)), second = row_and_head(p, w, Warp::row_of(0, 1));
  return ScoreOptions<T, Warp::kScores>(p.scores, a, w.sequence, {first.head, second.head}, {first.row, second.row});
}

// Writes o and lse, or the partial sums.
template <class T, AttentionTile kTile>
__device__ __forceinline__ void store_rows(const AttentionForwardParams& p, const AttentionArgs& a,
                                           const AttentionPartials& partials, const AttentionWork& w, char* memory,
                                           AttentionWarp<T, kTile>& warp) {
  using Warp = AttentionWarp<T, kTile>;
  constexpr int kPitch = kTile.v_pitch(), kOfChunk = 16 / sizeof(T);
  static_assert(kPitch <= kTile.k_pitch());
  const int32_t rows = (p.scores.packed ? w.sequence.q_length : p.scores.q_size) * int32_t(p.pack.divisor) - w.first;
  const int lane = Warp::lane();
  memory += Warp::first_row() * kTile.k_pitch();  // the rows of q, which only this warp reads, are no longer needed
  __syncwarp();                                   // all lanes have read them
#pragma unroll
  for (int f = 0; f < Warp::kF; ++f)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = Warp::row_of(f, h), in_warp = 16 * f + 8 * h + lane / 4;
      const RowAndHead at = row_and_head(p, w, r);
      const float largest = warp.rows[f].largest[h];
      if (p.splits > 1) {
        if (r >= rows) continue;
        const int64_t n =
            int64_t(w.split) * p.scores.batch * p.scores.heads * p.scores.q_size + lse_row(p.scores, w, at);
        if (lane % 4 == 0) *reinterpret_cast<float2*>(partials.ends + 2 * n) = {largest, warp.rows[f].sum[h]};
        if (largest == -INFINITY) continue;
        float* const to = partials.sums + n * p.value_size;
        for_each_lane_values<T>(warp.o[f], h, [&](int chunk, int element, const LaneValues<T>& values) {
          if (kOfChunk * chunk < p.value_size) store_partial<T>(to + kOfChunk * chunk + element, values);
        });
        continue;
      }
      const RowEnd end = row_end(p, a, w, at, largest, warp.rows[f].sum[h]);
      if (lane % 4 == 0 && r < rows) static_cast<float*>(a.lse)[lse_row(p.scores, w, at)] = end.lse;
      for_each_lane_values<T>(warp.o[f], h, [&](int chunk, int element, const LaneValues<T>& values) {
        LaneValues<T> ends;
#pragma unroll
        for (int i = 0; i < kLaneColumns<T>; ++i) ends[i] = end.of(values[i]);
        store_lane_values<T>(memory + chunk_offset(in_warp, chunk, kPitch) + element * int(sizeof(T)), ends);
      });
    }
  if (p.splits > 1) return;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < Warp::kWarpRows; n += 4) {
    const int in_warp = n + lane / 8, r = Warp::first_row() + in_warp;
    T* const to = static_cast<T*>(a.o) + row_offset(p.o, w, row_and_head(p, w, r));
#pragma unroll
    for (int c = lane % 8; c < kTile.value / kOfChunk; c += 8)
      if (r < rows && kOfChunk * c < p.value_size)
        st_global_v4(to + kOfChunk * c, *reinterpret_cast<const uint4*>(memory + chunk_offset(in_warp, c, kPitch)));
  }
}

// The sums of four elements of a row, and the row's maximum and sum of exponentials.
struct JoinedSums {
  float4 total{0, 0, 0, 0};
  float largest = -INFINITY, sum = 0;
};

// If the warps have divided the columns: adds their sums in shared memory, in the order of the warps.
template <class T, AttentionTile kTile> struct JoinedWarps {
  static constexpr int kWarps = kTile.warps, kSums = 16 * kTile.value;
  float* const memory;  // [warp, row, value], then `ends` [warp, row, 2]
  float* const ends;

  __device__ __forceinline__ JoinedWarps(float* shared, AttentionWarp<T, kTile>& warp)
      : memory(shared), ends(shared + kWarps * kSums) {
    static_assert(AttentionWarp<T, kTile>::kF == 1);
    const int lane = warp.lane();
    __syncthreads();  // all warps have read the last tile of columns
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = 8 * h + lane / 4;
      if (lane % 4 == 0)
        *reinterpret_cast<float2*>(ends + 2 * (16 * warp.warp() + r)) = {warp.rows[0].largest[h], warp.rows[0].sum[h]};
      for_each_lane_values<T>(warp.o[0], h, [&](int chunk, int element, const LaneValues<T>& values) {
        const int column = chunk * (16 / int(sizeof(T))) + element;
        store_partial<T>(memory + warp.warp() * kSums + r * kTile.value + column, values);
      });
    }
    __syncthreads();
  }
  // Four elements from n on, of row r.
  __device__ __forceinline__ JoinedSums at(int r, int n) const {
    JoinedSums joined;
#pragma unroll
    for (int k = 0; k < kWarps; ++k) joined.largest = fmaxf(joined.largest, ends[2 * (16 * k + r)]);
    const float from = joined.largest == -INFINITY ? 0.0f : joined.largest;
#pragma unroll
    for (int k = 0; k < kWarps; ++k) {
      const float2 end = *reinterpret_cast<const float2*>(ends + 2 * (16 * k + r));
      const float4 v = *reinterpret_cast<const float4*>(memory + k * kSums + n);
      const float weight = fast::exp2_ftz((end.x - from) * fast::kLog2E);
      joined.sum += end.y * weight;
      float4& total = joined.total;
      total = {total.x + v.x * weight, total.y + v.y * weight, total.z + v.z * weight, total.w + v.w * weight};
    }
    return joined;
  }
};

#if __CUDA_ARCH__ >= 900
// Adds the sums of the blocks of a cluster in the order of attention_join(), so that both give the same bits. Block k has
// part k of the columns. In its shared memory, four sums are at the address `sums`, and the maximum and the sum of
// exponentials of their row at `ends`.
__device__ __forceinline__ JoinedSums join_cluster(int blocks, uint32_t sums, uint32_t ends) {
  constexpr int kMost = 8, kGroups = 4;
  float2 end[kMost];
  JoinedSums joined;
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    end[k] = {-INFINITY, 0};
    if (k >= blocks) continue;
    ld_cluster<1>(&end[k].x, ends, k);
    ld_cluster<1>(&end[k].y, ends + 4, k);
    joined.largest = fmaxf(joined.largest, end[k].x);
  }
  const float from = joined.largest == -INFINITY ? 0.0f : joined.largest;
  float4 totals[kGroups] = {};
  float exponentials[kGroups] = {};
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const float weight = fast::exp2_ftz((end[k].x - from) * fast::kLog2E);
    if (k >= blocks || weight == 0) continue;
    float v[4];
    ld_cluster<4>(v, sums, k);
    float4& t = totals[k % kGroups];
    t = {t.x + v[0] * weight, t.y + v[1] * weight, t.z + v[2] * weight, t.w + v[3] * weight};
    exponentials[k % kGroups] = __fadd_rn(exponentials[k % kGroups], __fmul_rn(end[k].y, weight));
  }
  joined.total = totals[0];
#pragma unroll
  for (int g = 1; g < kGroups; ++g) {
    float4& t = joined.total;
    t = {t.x + totals[g].x, t.y + totals[g].y, t.z + totals[g].z, t.w + totals[g].w};
  }
  joined.sum = (exponentials[0] + exponentials[2]) + (exponentials[1] + exponentials[3]);
  return joined;
}
#endif

// As store_rows(), if the warps have divided the columns.
template <class T, AttentionTile kTile>
__device__ __forceinline__ void store_joined_rows(const AttentionForwardParams& p, const AttentionArgs& a,
                                                  const AttentionPartials& partials, const AttentionWork& w,
                                                  float* memory, AttentionWarp<T, kTile>& warp) {
  using Joined = JoinedWarps<T, kTile>;
  constexpr int kSums = Joined::kSums, kAtOnce = 4 * kTile.threads();
  static_assert((kSums + 32) * (kTile.warps + 1) * 4 <= kTile.stages * kTile.stage_bytes());
  const Joined warps(memory, warp);
  const int32_t rows = (p.scores.packed ? w.sequence.q_length : p.scores.q_size) * int32_t(p.pack.divisor) - w.first;
  const int first = int(threadIdx.x) * 4;
  auto exists = [&](int n) { return n / kTile.value < rows && n % kTile.value < p.value_size; };
  auto store = [&](int n, const JoinedSums& joined) {
    const RowAndHead at = row_and_head(p, w, n / kTile.value);
    const RowEnd end = row_end(p, a, w, at, joined.largest, joined.sum);
    const int d = n % kTile.value;
    if (d == 0) static_cast<float*>(a.lse)[lse_row(p.scores, w, at)] = end.lse;
    store_four(static_cast<T*>(a.o) + row_offset(p.o, w, at) + d, end, joined.total);
  };
#if __CUDA_ARCH__ >= 900
  if (p.in_cluster) {
    float* const sums = warps.ends + 32 * kTile.warps;  // of this block: [row, value], then [row, 2]
    for (int n = first; n < kSums; n += kAtOnce) {
      if (!exists(n)) continue;
      const JoinedSums joined = warps.at(n / kTile.value, n);
      *reinterpret_cast<float4*>(sums + n) = joined.total;
      if (n % kTile.value == 0)
        *reinterpret_cast<float2*>(sums + kSums + 2 * (n / kTile.value)) = {joined.largest, joined.sum};
    }
    cluster_sync();
    const uint32_t address = cvta_to_shared(sums);
    for (int n = int(cluster_ctarank()) * kAtOnce + first; n < kSums; n += p.splits * kAtOnce)
      if (exists(n)) store(n, join_cluster(p.splits, address + n * 4, address + (kSums + 2 * (n / kTile.value)) * 4));
    cluster_sync();  // no block reads the sums of this block any more
    return;
  }
#endif
  for (int n = first; n < kSums; n += kAtOnce) {
    if (!exists(n)) continue;
    const JoinedSums joined = warps.at(n / kTile.value, n);
    if (p.splits == 1) {
      store(n, joined);
      continue;
    }
    const int d = n % kTile.value;
    const int64_t to = int64_t(w.split) * p.scores.batch * p.scores.heads * p.scores.q_size +
                       lse_row(p.scores, w, row_and_head(p, w, n / kTile.value));
    if (d == 0) *reinterpret_cast<float2*>(partials.ends + 2 * to) = {joined.largest, joined.sum};
    if (joined.largest != -INFINITY) *reinterpret_cast<float4*>(partials.sums + to * p.value_size + d) = joined.total;
  }
}

}  // namespace

template <class T, AttentionTile kTile>
__global__ void __launch_bounds__(kTile.threads(), kTile.blocks)
    attention_mma(const __grid_constant__ AttentionForwardParams p, const __grid_constant__ AttentionArgs a,
                  AttentionPartials partials) {
  using Warp = AttentionWarp<T, kTile>;
  constexpr int kThreads = kTile.threads(), kKPitch = kTile.k_pitch(), kVPitch = kTile.v_pitch();
  constexpr int kKBytes = kTile.columns * kKPitch;
  static_assert(kTile.blocks > 0 && kTile.stages > 0);
  griddep_launch_dependents();
  griddep_wait();
  const AttentionWork w = attention_work(p, a, kTile);
  if (p.scores.packed) {
    if (w.first == 0)
      clear_gaps<T>(p.scores, a, p.o, p.value_size, w.sequence, {w.head, w.head + int32_t(p.pack.divisor)},
                    int32_t(threadIdx.x), kThreads);
    if (w.first >= w.sequence.q_length * int32_t(p.pack.divisor)) return;
  }
  const uint32_t shared = cvta_to_shared(dynamic_shared()), ring = shared + kTile.q_bytes();
  const ColumnTensor<T> k(p, w, p.k, a.k, kTile.pages()), v(p, w, p.v, a.v, kTile.pages());
  // Copies a tile of k, of v, or of both.
  auto copy_columns = [&](int32_t tile, bool of_k, bool of_v) {
    constexpr int kStep = kThreads / 8;
    const uint32_t to = ring + tile % kTile.stages * kTile.stage_bytes();
    const int32_t first = tile * kTile.columns, count = w.sequence.kv_length - first;
    const ColumnPlaces<kTile.columns / kStep> places(p, a, w, first + int32_t(threadIdx.x) / 8, kStep, kTile.pages());
    auto from = [&](const ColumnTensor<T>& t, int i) {
      return t.first + places.page[i] * t.page + places.row[i] * t.row;
    };
    if (of_k)
      copy_rows<T, kTile.columns, kKPitch, kThreads>(to, p.head_size, count, [&](int i, int) { return from(k, i); });
    if (of_v)
      copy_rows<T, kTile.columns, kVPitch, kThreads>(to + kKBytes, p.value_size, count,
                                                     [&](int i, int) { return from(v, i); });
    cp_async_commit_group();
  };
  // Without a tile, commits an empty group, so that the number of groups does not depend on the number of tiles.
  auto copy_ahead = [&](int32_t tile) {
    if (tile < w.tiles.end) copy_columns(tile, true, true);
    else cp_async_commit_group();
  };
  if (w.tiles.begin < w.tiles.end) {
    copy_rows<T, kTile.rows(), kKPitch, kThreads>(
        shared, p.head_size, w.sequence.q_length * int32_t(p.pack.divisor) - w.first,
        [&](int, int r) { return static_cast<const T*>(a.q) + row_offset(p.q, w, row_and_head(p, w, r)); });
    copy_columns(w.tiles.begin, true, kTile.stages > 1);
#pragma unroll
    for (int n = 1; n < kTile.stages - 1; ++n) copy_ahead(w.tiles.begin + n);
  }

  Warp warp(shared);
  [[maybe_unused]] const auto options = [&] {
    if constexpr (kTile.extras) return score_options<T, kTile>(p, a, w);
    else return 0;
  }();
  const float c = kTile.extras ? fast::kLog2E : float(a.scale) * fast::kLog2E;
  auto rows_from = [&](int first, int count) -> IndexRange {
    return {row_and_head(p, w, first).row, row_and_head(p, w, first + count - 1).row + 1};
  };
  const IndexRange all = columns_of_all(p.scores, w.sequence, rows_from(0, kTile.rows()));
  const IndexRange any = columns_of_any(p.scores, w.sequence, rows_from(Warp::first_row(), Warp::kWarpRows));
#pragma unroll 1
  for (int32_t tile = w.tiles.begin; tile < w.tiles.end; ++tile) {
    const int32_t column = tile * kTile.columns;
    const bool sees = column + Warp::first_column() < any.end, more = tile + 1 < w.tiles.end;
    const uint32_t stage = ring + tile % kTile.stages * kTile.stage_bytes();
    cp_async_wait_group<(kTile.stages > 2 ? kTile.stages - 2 : 0)>();
    if constexpr (kIsFloat32<T>) {
      if (tile == w.tiles.begin) round_rows<kTile.rows(), kKPitch, kThreads>(shared);
      round_rows<kTile.columns, kKPitch, kThreads>(stage);
      if (kTile.stages > 1) round_rows<kTile.columns, kVPitch, kThreads>(stage + kKBytes);
    }
    __syncthreads();  // k is there, and all warps have left v of the tile before
    if (tile == w.tiles.begin) warp.keep_q();
    if (kTile.stages == 1) copy_columns(tile, false, true);
    else copy_ahead(tile + kTile.stages - 1);
    if (sees) {
      const int32_t of_lane = column + Warp::column_of_lane();
      if constexpr (kTile.extras) {
        const FragmentBias<T, Warp::kScores> bias(p.scores, a, options.rows, of_lane, w.sequence.kv_length);
        warp.multiply_k(stage);
        options.finish_scores(p.scores, a, bias, of_lane, warp.s[0]);
      } else {
        warp.multiply_k(stage);
      }
      if (column < all.begin || column + kTile.columns > all.end) warp.hide(p, w, column);
      warp.exponentials(c);
      if constexpr (kTile.extras) options.drop(p.scores, a, of_lane, warp.s[0]);
    }
    if constexpr (kTile.stages == 1) {
      cp_async_wait_group<0>();
      if constexpr (kIsFloat32<T>) round_rows<kTile.columns, kVPitch, kThreads>(stage + kKBytes);
      __syncthreads();  // v is there, and all warps have left k
      if (more) copy_columns(tile + 1, true, false);
    }
    if (sees) warp.multiply_v(stage + kKBytes);
  }
#pragma unroll
  for (SoftmaxRows& rows : warp.rows) rows.finish(kTile.extras ? 1.0f : float(a.scale));
  if constexpr (kTile.along_columns)
    store_joined_rows(p, a, partials, w, reinterpret_cast<float*>(dynamic_shared() + kTile.q_bytes()), warp);
  else store_rows(p, a, partials, w, dynamic_shared(), warp);
}

// Adds the parts of the columns. A block computes a row. The warps divide the parts, and the order of additions does not
// depend on their number.
template <class T>
__global__ void __launch_bounds__(128)
    attention_join(const __grid_constant__ AttentionForwardParams p, const __grid_constant__ AttentionArgs a,
                   AttentionPartials partials) {
  constexpr int kWarps = 4, kMostValues = 256;
  __shared__ float weights[kAttentionMostSplits];
  __shared__ float4 sums[kWarps][kMostValues / 4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t rows = int64_t(p.scores.batch) * p.scores.heads * p.scores.q_size, row = blockIdx.x;
  griddep_wait();
  AttentionWork w{};
  const int64_t head_batch = row / p.scores.q_size;
  w.sequence = sequence_rows(p.scores, a, int32_t(head_batch / p.scores.heads));
  const RowAndHead at{int32_t(row % p.scores.q_size), int32_t(head_batch % p.scores.heads)};
  const int32_t parts = at.row < w.sequence.q_length ? p.splits : 0;

  // All warps compute the same.
  const float2* const ends = reinterpret_cast<const float2*>(partials.ends) + row;
  float largest = -INFINITY, sum = 0;
  for (int k = lane; k < parts; k += 32) largest = fmaxf(largest, ends[k * rows].x);
#pragma unroll
  for (int n = 16; n > 0; n /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, n));
  const float from = largest == -INFINITY ? 0.0f : largest;
  for (int k = lane; k < parts; k += 32) {
    const float2 end = ends[k * rows];
    const float weight = fast::exp2_ftz((end.x - from) * fast::kLog2E);
    weights[k] = weight;
    sum += end.y * weight;
  }
#pragma unroll
  for (int n = 16; n > 0; n /= 2) sum += __shfl_xor_sync(0xffffffff, sum, n);
  __syncthreads();
  for (int d = 4 * lane; d < p.value_size; d += 128) {
    float4 total{0, 0, 0, 0};
#pragma unroll 4
    for (int k = warp; k < parts; k += kWarps) {
      const float weight = weights[k];
      float4 v{0, 0, 0, 0};  // a part without visible columns has written no sums
      if (weight != 0) v = *reinterpret_cast<const float4*>(partials.sums + (k * rows + row) * p.value_size + d);
      total = {total.x + v.x * weight, total.y + v.y * weight, total.z + v.z * weight, total.w + v.w * weight};
    }
    sums[warp][d / 4] = total;
  }
  __syncthreads();
  const RowEnd end = row_end(p, a, w, at, largest, sum);
  if (threadIdx.x == 0) static_cast<float*>(a.lse)[row] = end.lse;
  for (int d = int(threadIdx.x); d < p.value_size / 4; d += 32 * kWarps) {
    float4 total = sums[0][d];
#pragma unroll
    for (int k = 1; k < kWarps; ++k) {
      const float4 v = sums[k][d];
      total = {total.x + v.x, total.y + v.y, total.z + v.z, total.w + v.w};
    }
    store_four(static_cast<T*>(a.o) + row_offset(p.o, w, at) + 4 * d, end, total);
  }
}

}  // namespace minidnn
