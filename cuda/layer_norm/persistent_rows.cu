// SPDX-License-Identifier: Apache-2.0
// Layer, RMS and group norm of contiguous rows that are kept on chip.
// - Work division: a thread has kVectors vectors of a row. A row has 8 or 16 lanes (forward only), one or more warps, a
//   block, or a cluster of blocks (sm_90), each of which sends its sums to all others.
// - Storage: forward, short rows are in registers, and a block processes its rows once. Long rows, and all rows
//   backward, are in shared memory: as many blocks as run at the same time are persistent, and copy the next rows while
//   they process the current ones.
// - Bytes: x, and backward dy, are read once; the result is written once.
// - Numerics, forward: each warp computes the mean of its threads' first vectors, then the deviations from it. The mean
//   of the deviations corrects this first mean and the sum of squares. The first vectors are an eighth of the values or
//   more, so their mean is at most 2.7 standard deviations off, and |mean| >> std costs no digits. Warps, and blocks,
//   then synchronise once.
// - Backward: a thread keeps the sums of dscale and dbias of its columns; a second launch joins those of all blocks, in
//   a fixed order.
#include "cpp/layer_norm/layer_norm_math.h"
#include "cuda/device/cluster.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/layer_norm/persistent_rows_params.h"
#include "cuda/norm/moments.cuh"

namespace minidnn {

constexpr int kMaxWarps = 32, kMaxBlocks = 16;

// Shared memory for the sums of kRows rows. An iteration uses one of two buffers: a warp may be one iteration ahead
// of others that still read, never two.
template <int kRows> struct RowSums {
  float4 of_warp[2][kRows][kMaxWarps];
  float4 of_block[2][kRows][kMaxBlocks];
  uint64_t arrived[2];  // mbarriers: the sums of the other blocks have arrived
};

// The blocks of a row. Before sm_90 there is one, as there are no clusters.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool several_blocks(const RowTiling& r) { return r.blocks > 1; }
__device__ __forceinline__ uint32_t block_of_row(const RowTiling& r) { return r.blocks == 1 ? 0 : cluster_ctarank(); }
// Waits until all blocks of the cluster run: only then may a block write to another's shared memory. The wait costs
// little while loads are in flight.
template <int kRows> __device__ __forceinline__ void init_cluster(RowSums<kRows>& shared) {
  if (threadIdx.x == 0) {
    mbarrier_init(cvta_to_shared(&shared.arrived[0]), 1);
    mbarrier_init(cvta_to_shared(&shared.arrived[1]), 1);
    fence_mbarrier_init();
  }
  cluster_sync_relaxed();
}
// Sends a block's sums to all blocks of the cluster and waits for theirs. Two buffers suffice. A block writes the sums
// of iteration i + 2 after it has received those of iteration i + 1 from all blocks; and each block has read those of
// iteration i before it sends those of iteration i + 1.
template <int kRows>
__device__ __forceinline__ void exchange(const RowTiling& r, RowSums<kRows>& shared, int iteration,
                                         const float4 (&sums)[kRows]) {
  cluster_all_gather(r.blocks, shared.of_block[iteration % 2], shared.arrived[iteration % 2], iteration / 2 % 2, sums);
}
#else
__device__ __forceinline__ bool several_blocks(const RowTiling&) { return false; }
__device__ __forceinline__ uint32_t block_of_row(const RowTiling&) { return 0; }
template <int kRows> __device__ __forceinline__ void init_cluster(RowSums<kRows>&) {}
template <int kRows> __device__ __forceinline__ void exchange(const RowTiling&, RowSums<kRows>&, int,
                                                              const float4 (&)[kRows]) {}
#endif

__device__ __forceinline__ float warp_sum(float a) {
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) a += __shfl_xor_sync(0xffffffff, a, lane);
  return a;
}
// The sum over the lanes of a warp that share a row: 8, 16 or all 32.
__device__ __forceinline__ float row_lanes_sum(float a, uint32_t threads) {
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) a += __shfl_xor_sync(0xffffffff, a, lane);
  if (threads > 8) a += __shfl_xor_sync(0xffffffff, a, 8);
  if (threads > 16) a += __shfl_xor_sync(0xffffffff, a, 16);
  return a;
}

// JoinSums and JoinMoments join the partial results of a row's warps, then those of its blocks. Each lane passes one of
// them; all lanes obtain the same bits.
struct JoinSums {  // x and y: two sums
  static __device__ __forceinline__ float4 of(float4 partial) {
    return {warp_sum(partial.x), warp_sum(partial.y), 0, 0};
  }
};
// x: count; y: mean, rounded to float; z: the remainder of the mean; w: sum of squares about the mean. A partial result
// with a count of 0 is ignored; that of lane 0 always counts. Means are taken relative to lane 0's, so |mean| >> std
// costs no digits. The joined squares are about the mean of all.
struct JoinMoments {
  static __device__ __forceinline__ float4 of(float4 partial) {
    const float first = __shfl_sync(0xffffffff, partial.y, 0);
    const float apart = partial.x > 0 ? (partial.y - first) + partial.z : 0.f;
    const float n = warp_sum(partial.x), rest = __fdividef(warp_sum(partial.x * apart), n), away = apart - rest;
    return {n, first, rest, warp_sum(partial.w + partial.x * away * away)};
  }
};

// Replaces the sums of a warp by those of the whole row, for each of kRows rows.
template <class Join, int kRows>
__device__ __forceinline__ void join_rows(const RowTiling& r, RowSums<kRows>& shared, int iteration,
                                          float4 (&sums)[kRows]) {
  if (r.threads <= 32) return;
  const int slot = iteration % 2;
  const uint32_t warps = r.threads / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) shared.of_warp[slot][i][warp] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float4 partial{};
    if (lane < warps) partial = shared.of_warp[slot][i][warp / warps * warps + lane];
    sums[i] = Join::of(partial);
  }
  if (!several_blocks(r)) return;
  exchange(r, shared, iteration, sums);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float4 partial{};
    if (lane < r.blocks) partial = shared.of_block[slot][i][lane];
    sums[i] = Join::of(partial);
  }
}
template <class Join>
__device__ __forceinline__ float4 join_row(const RowTiling& r, RowSums<1>& shared, int iteration,
                                           const float4& of_warp) {
  float4 sums[1]{of_warp};
  join_rows<Join>(r, shared, iteration, sums);
  return sums[0];
}

// The vectors of a row that this thread has. row_in_block: index of the row among those that the block processes
// together.
struct RowSlice {
  uint32_t row_in_block, first, step;  // vectors first, first + step, ...
  __device__ explicit RowSlice(const RowTiling& r) {
    row_in_block = threadIdx.x / r.threads;
    const uint32_t in_block = threadIdx.x - row_in_block * r.threads;
    first = block_of_row(r) * r.threads + in_block;
    step = r.threads * r.blocks;
  }
  __device__ __forceinline__ bool has(const RowTiling& r, int w) const { return first + w * step < r.vectors; }
  template <int kVec> __device__ __forceinline__ int64_t column(int w) const {
    return int64_t(first + w * step) * kVec;
  }
};

// The parameters of a vector; `none` if there are none. Group norm: one parameter for all its elements.
template <int kVec>
__device__ __forceinline__ void parameters_of(const RowTiling& r, int64_t first_channel, uint32_t vector,
                                              const void* from, float none, float (&p)[kVec]) {
  if (r.groups == 0) return read_parameters<kVec>(p, from, int64_t(vector) * kVec, none);
  const float one = from ? __ldg(typed<float>(from) + first_channel + r.span.quotient(vector)) : none;
#pragma unroll
  for (int k = 0; k < kVec; ++k) p[k] = one;
}

// Forward, short rows, in registers. Grid: one block per r.rows_at_once rows, or one cluster of r.blocks blocks per
// row.
template <class T, int kVec, int kVectors>
__global__ void __launch_bounds__(1024) layer_norm_rows_forward(const __grid_constant__ RowTiling r, LayerNormArgs a) {
  __shared__ RowSums<1> shared;
  const RowSlice slice(r);
  const int64_t row = int64_t(blockIdx.x / r.blocks) * r.rows_at_once + slice.row_in_block;
  const bool exists = row < r.rows;
  const T* x = typed<T>(a.x) + row * r.columns;
  Packed<T, kVec> v[kVectors];
  bool has[kVectors];
#pragma unroll
  for (int w = 0; w < kVectors; ++w) {
    has[w] = exists && slice.first + w * slice.step < r.vectors;
    if (has[w]) v[w].load(x + int64_t(slice.first + w * slice.step) * kVec);
  }
  if (several_blocks(r)) init_cluster(shared);
  const float n = float(r.columns);
  // Of a warp; of a row where several rows share a warp. held: elements; each: 1 / held.
  float mean = 0, rest = 0, held = 0, each = 0;
  if (r.centered) {
    float sum = 0, firsts = 0;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      held += float(kVec * __popc(__ballot_sync(0xffffffff, has[w])));
      if (w == 0) firsts = held;
    }
    if (r.threads < 32) {
      held = n;
      firsts = float(kVec * min_of(r.vectors, r.threads));
    }
    if (has[0]) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum += v[0][k];
    }
    each = held > 0 ? 1.f / held : 0.f;
    mean = firsts > 0 ? __fdividef(row_lanes_sum(sum, r.threads), firsts) : 0.f;
  }
  float away = 0, squares = 0;
#pragma unroll
  for (int w = 0; w < kVectors; ++w)
    if (has[w]) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        const float deviation = v[w][k] - mean;
        away += deviation;
        squares += deviation * deviation;
      }
    }
  squares = row_lanes_sum(squares, r.threads);
  if (r.centered) {
    away = row_lanes_sum(away, r.threads);
    rest = away * each;
    const float4 all = join_row<JoinMoments>(r, shared, 0, {held, mean, rest, squares - away * rest});
    mean = all.y;
    rest = all.z;
    squares = all.w;
  } else squares = join_row<JoinSums>(r, shared, 0, {squares, 0, 0, 0}).x;
  const float inv_std = norm::inverse_std(max_or_nan(squares * r.per_column, 0.f), a.eps);
  if (exists && slice.first == 0) {
    if (r.centered) static_cast<float*>(a.mean)[row] = mean + rest;
    static_cast<float*>(a.inv_std)[row] = inv_std;
  }
  const float shift = rest * inv_std;
  T* out = static_cast<T*>(a.out) + row * r.columns;
  const int64_t first_channel = r.groups ? row % r.groups * r.of_group : 0;
#pragma unroll
  for (int w = 0; w < kVectors; ++w)
    if (has[w]) {
      const uint32_t vector = slice.first + w * slice.step;
      float scale[kVec], bias[kVec], y[kVec];
      parameters_of<kVec>(r, first_channel, vector, a.scale, 1, scale);
      parameters_of<kVec>(r, first_channel, vector, a.bias, 0, bias);
#pragma unroll
      for (int k = 0; k < kVec; ++k) y[k] = ((v[w][k] - mean) * inv_std - shift) * scale[k] + bias[k];
      Packed<T, kVec>::store(out + int64_t(vector) * kVec, y);
    }
}

// Waits until the oldest of `stages` commit groups of this thread is complete.
__device__ __forceinline__ void wait_stage(uint32_t stages) {
  if (stages == 1) cp_async_wait_group<0>();
  else if (stages == 2) cp_async_wait_group<1>();
  else if (stages == 3) cp_async_wait_group<2>();
  else cp_async_wait_group<3>();
}

// Blocks of 512 threads that run on an SM at the same time.
template <int kVec, int kVectors> constexpr int kBlocksOfSm = kVec * kVectors <= kTwoBlocksPerSm ? 2 : 1;

// Waits until commit group w of kVectors is complete.
template <int kVectors, int i = 0> __device__ __forceinline__ void wait_group(int w) {
  if (w == i) cp_async_wait_group<kVectors - 1 - i>();
  else if constexpr (i + 1 < kVectors) wait_group<kVectors, i + 1>(w);
}

// Forward, long rows. Persistent clusters of r.blocks blocks: each iteration normalises kRows rows of shared memory
// while the rows of the next iterations are in flight. The parameters of a thread's columns are kept in registers. A
// thread reads only what it has copied itself. Shared memory: vectors [r.stages][kRows][kVectors][threads].
template <class T, int kVec, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads)
    layer_norm_rows_forward_smem(const __grid_constant__ RowTiling r, LayerNormArgs a) {
  constexpr int kRows = rows_per_iteration(kVec);
  extern __shared__ uint4 dynamic[];
  __shared__ RowSums<kRows> shared;
  const RowSlice slice(r);
  const int64_t start = int64_t(blockIdx.x / r.blocks) * kRows, step = int64_t(gridDim.x / r.blocks) * kRows;
  auto has = [&](int w) { return slice.has(r, w); };
  auto column = [&](int w) { return slice.column<kVec>(w); };
  auto slot_of = [&](uint32_t stage) {
    return reinterpret_cast<Packed<T, kVec>*>(dynamic) + stage * (kRows * kVectors * blockDim.x) + threadIdx.x;
  };
  auto fetch = [&](Packed<T, kVec>* stage, int i, int w, int64_t row) {
    cp_async<16>(cvta_to_shared(stage + (i * kVectors + w) * blockDim.x), typed<T>(a.x) + row * r.columns + column(w),
                 row < r.rows && has(w));
  };
  for (uint32_t s = 0; s < r.stages; ++s) {
#pragma unroll
    for (int w = 0; w < kVectors; ++w)
#pragma unroll
      for (int i = 0; i < kRows; ++i) fetch(slot_of(s), i, w, start + s * step + i);
    cp_async_commit_group();
  }
  float scale[kVectors][kVec]{}, bias[kVectors][kVec]{}, of_warp = 0, of_first = 0;
#pragma unroll
  for (int w = 0; w < kVectors; ++w) {
    of_warp += float(kVec * __popc(__ballot_sync(0xffffffff, has(w))));
    if (w == 0) of_first = of_warp;
    if (has(w))
      read_parameters<kVec>(scale[w], a.scale, column(w), 1), read_parameters<kVec>(bias[w], a.bias, column(w), 0);
  }
  const float per_warp = of_warp > 0 ? 1.f / of_warp : 0.f, per_first = of_first > 0 ? 1.f / of_first : 0.f;
  if (several_blocks(r)) init_cluster(shared);
  uint32_t oldest = 0;
  int iteration = 0;
#pragma unroll 1
  for (int64_t row = start; row < r.rows; row += step, ++iteration) {
    Packed<T, kVec>* const stage = slot_of(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    wait_stage(r.stages);
    float4 sums[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float mean = 0, away = 0, squares = 0;
      if (r.centered) {
        float sum = 0;
        const Packed<T, kVec> x = stage[i * kVectors * blockDim.x];
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum += x[k];
        mean = warp_sum(sum) * per_first;
      }
#pragma unroll
      for (int w = 0; w < kVectors; ++w)
        if (has(w)) {
          const Packed<T, kVec> x = stage[(i * kVectors + w) * blockDim.x];
#pragma unroll
          for (int k = 0; k < kVec; ++k) {
            const float deviation = x[k] - mean;
            away += deviation;
            squares += deviation * deviation;
          }
        }
      squares = warp_sum(squares);
      if (r.centered) {
        away = warp_sum(away);
        const float rest = away * per_warp;
        sums[i] = {of_warp, mean, rest, squares - away * rest};
      } else sums[i] = {squares, 0, 0, 0};
    }
    if (r.centered) join_rows<JoinMoments>(r, shared, iteration, sums);
    else join_rows<JoinSums>(r, shared, iteration, sums);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float mean = r.centered ? sums[i].y : 0.f, rest = r.centered ? sums[i].z : 0.f;
      const float squares = r.centered ? sums[i].w : sums[i].x;
      const float inv_std = norm::inverse_std(max_or_nan(squares * r.per_column, 0.f), a.eps), shift = rest * inv_std;
      const bool exists = row + i < r.rows;
      if (exists && slice.first == 0) {
        if (r.centered) static_cast<float*>(a.mean)[row + i] = mean + rest;
        static_cast<float*>(a.inv_std)[row + i] = inv_std;
      }
      T* const out = static_cast<T*>(a.out) + (row + i) * r.columns;
#pragma unroll
      for (int w = 0; w < kVectors; ++w) {
        const Packed<T, kVec> x = stage[(i * kVectors + w) * blockDim.x];
        float y[kVec];
#pragma unroll
        for (int k = 0; k < kVec; ++k) y[k] = ((x[k] - mean) * inv_std - shift) * scale[w][k] + bias[w][k];
        if (exists && has(w)) Packed<T, kVec>::store(out + column(w), y);
        fetch(stage, i, w, row + i + r.stages * step);
      }
    }
    cp_async_commit_group();
  }
  cp_async_wait_group<0>();
}

// A ring of r.stages rows of x and dy in shared memory, which are complete or in flight. A thread reads back only what
// it has copied itself, so the copies need no barrier. Vectors that do not exist are zeros.
template <class T, int kVec, int kVectors> struct RowRing {
  Packed<T, kVec>* slots;  // [stages][kVectors][x, dy][threads]

  __device__ __forceinline__ Packed<T, kVec>* stage(uint32_t i) const {
    return slots + i * (2 * kVectors * blockDim.x) + threadIdx.x;
  }
  static __device__ __forceinline__ Packed<T, kVec>& x(Packed<T, kVec>* stage, int w) {
    return stage[2 * w * blockDim.x];
  }
  static __device__ __forceinline__ Packed<T, kVec>& dy(Packed<T, kVec>* stage, int w) {
    return stage[(2 * w + 1) * blockDim.x];
  }
  // at: the first element of the vector, which is read if `exists`.
  static __device__ __forceinline__ void fetch(const LayerNormArgs& a, Packed<T, kVec>* stage, int w, int64_t at,
                                               bool exists) {
    Packed<T, kVec>&x_to = x(stage, w), &dy_to = dy(stage, w);
    if constexpr (kVec > 1) {
      cp_async<16>(cvta_to_shared(&x_to), typed<T>(a.x) + at, exists);
      cp_async<16>(cvta_to_shared(&dy_to), typed<T>(a.dy) + at, exists);
    } else if (exists) {
      x_to.load(typed<T>(a.x) + at);
      dy_to.load(typed<T>(a.dy) + at);
    } else {
      x_to.raw = T(0.f);
      dy_to.raw = T(0.f);
    }
  }
};

// The statistics of a row, loaded one iteration ahead.
struct RowStatistics {
  float mean = 0, inv_std = 0;
  __device__ __forceinline__ void load(const RowTiling& r, const LayerNormArgs& a, int64_t row) {
    const bool exists = row < r.rows;
    mean = exists && r.centered ? __ldg(typed<float>(a.mean) + row) : 0.f;
    inv_std = exists ? __ldg(typed<float>(a.inv_std) + row) : 0.f;
  }
};

// Whether scale is kept in registers; if these do not suffice, it is in shared memory, behind the rows.
template <int kVec, int kVectors> constexpr bool kKeepsScale = kVec * kVectors <= kScaleInRegisters;

// Joins dscale and dbias of the rows that the block processed together, by halves: lower half + upper half.
template <int kVec, int kVectors>
__device__ __forceinline__ void join_block_rows(const RowTiling& r, const RowSlice& slice, float2* other,
                                                float (&dscale)[kVectors][kVec], float (&dbias)[kVectors][kVec]) {
#pragma unroll 1
  for (uint32_t row_count = r.rows_at_once; row_count > 1;) {
    const uint32_t half = (row_count + 1) / 2, threads = half * r.threads;
    __syncthreads();
    if (slice.row_in_block >= half && slice.row_in_block < row_count) {
#pragma unroll
      for (int i = 0; i < kVectors * kVec; ++i)
        other[i * threads + threadIdx.x - threads] = {dscale[i / kVec][i % kVec], dbias[i / kVec][i % kVec]};
    }
    __syncthreads();
    if (slice.row_in_block < row_count - half) {
#pragma unroll
      for (int i = 0; i < kVectors * kVec; ++i) {
        const float2 more = other[i * threads + threadIdx.x];
        dscale[i / kVec][i % kVec] += more.x;
        dbias[i / kVec][i % kVec] += more.y;
      }
    }
    row_count = half;
  }
}
template <int kVec, int kVectors>
__device__ __forceinline__ void store_partials(const RowTiling& r, const RowSlice& slice, float2* to,
                                               const float (&dscale)[kVectors][kVec],
                                               const float (&dbias)[kVectors][kVec]) {
#pragma unroll
  for (int w = 0; w < kVectors; ++w)
    if (slice.has(r, w)) {
      float2* const at = to + slice.column<kVec>(w);
      if constexpr (kVec == 1) *at = {dscale[w][0], dbias[w][0]};
      else {
#pragma unroll
        for (int k = 0; k < kVec; k += 2)
          *reinterpret_cast<float4*>(at + k) = {dscale[w][k], dbias[w][k], dscale[w][k + 1], dbias[w][k + 1]};
      }
    }
}

// dx, and partial sums of dscale and dbias. Persistent clusters of r.blocks blocks, each with r.rows_at_once rows per
// iteration. partials: pairs of dscale and dbias, [clusters][columns].
template <class T, int kVec, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads, (kBlocksOfSm<kVec, kVectors>))
    layer_norm_rows_backward(const __grid_constant__ RowTiling r, LayerNormArgs a, float2* partials) {
  using Ring = RowRing<T, kVec, kVectors>;
  extern __shared__ uint4 dynamic[];
  __shared__ RowSums<1> shared;
  const Ring ring{reinterpret_cast<Packed<T, kVec>*>(dynamic)};
  const RowSlice slice(r);
  const int64_t step = int64_t(gridDim.x / r.blocks) * r.rows_at_once;
  const int64_t start = int64_t(blockIdx.x / r.blocks) * r.rows_at_once;
  auto has = [&](int w) { return slice.has(r, w); };
  auto column = [&](int w) { return slice.column<kVec>(w); };

  // The copies of a stage are one commit group. If there is only one stage, those of each vector are a group, and the
  // computation begins when the first vector has arrived.
  constexpr bool kOneStage = kVec > 1 && kVectors == 8;
  auto commit = [](int w) {
    if (kOneStage || w == kVectors - 1) cp_async_commit_group();
  };
  for (uint32_t i = 0; i < r.stages; ++i) {
    const int64_t row = start + slice.row_in_block + i * step;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      Ring::fetch(a, ring.stage(i), w, row * r.columns + column(w), row < r.rows && has(w));
      commit(w);
    }
  }
  RowStatistics next;
  next.load(r, a, start + slice.row_in_block);
  float scales[kVectors][kVec];
  float4* const scales_smem =
      reinterpret_cast<float4*>(ring.slots + r.stages * 2 * kVectors * blockDim.x) + threadIdx.x;
#pragma unroll
  for (int w = 0; w < kVectors; ++w) {
    if (has(w)) read_parameters<kVec>(scales[w], a.scale, column(w), 1);
    else {
#pragma unroll
      for (int k = 0; k < kVec; ++k) scales[w][k] = 0;
    }
    if constexpr (!kKeepsScale<kVec, kVectors>) {
#pragma unroll
      for (int k = 0; k < kVec; k += 4)
        scales_smem[(w * kVec + k) / 4 * blockDim.x] = {scales[w][k], scales[w][k + 1], scales[w][k + 2],
                                                        scales[w][k + 3]};
    }
  }
  auto scale_of = [&](int w, float(&scale)[kVec]) {
    if constexpr (kKeepsScale<kVec, kVectors>) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) scale[k] = scales[w][k];
    } else {
#pragma unroll
      for (int k = 0; k < kVec; k += 4) {
        const float4 four = scales_smem[(w * kVec + k) / 4 * blockDim.x];
        scale[k] = four.x;
        scale[k + 1] = four.y;
        scale[k + 2] = four.z;
        scale[k + 3] = four.w;
      }
    }
  };

  float dscale[kVectors][kVec]{}, dbias[kVectors][kVec]{};
  uint32_t oldest = 0;
  int iteration = 0;
  if (several_blocks(r)) init_cluster(shared);
#pragma unroll 1
  for (int64_t begin = start; begin < r.rows; begin += step, ++iteration) {
    const int64_t row = begin + slice.row_in_block;
    Packed<T, kVec>* const stage = ring.stage(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    const auto [mean, inv_std] = next;
    next.load(r, a, row + step);
    if constexpr (!kOneStage) wait_stage(r.stages);
    // inv_std is applied where it costs least: until the sums are joined, `second` is of dy scale (x - mean).
    float first = 0, second = 0;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      if constexpr (kOneStage) wait_group<kVectors>(w);
      const Packed<T, kVec> x = Ring::x(stage, w), dy = Ring::dy(stage, w);
      float scale[kVec];
      scale_of(w, scale);
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        const float one = dy[k], product = one * (x[k] - mean);
        first += one * scale[k];
        second += product * scale[k];
        dbias[w][k] += one;
        dscale[w][k] += product * inv_std;
      }
    }
    const float4 sums = join_row<JoinSums>(r, shared, iteration, {warp_sum(first), warp_sum(second), 0, 0});
    first = r.centered ? sums.x * r.per_column : 0.f;
    second = sums.y * inv_std * r.per_column * inv_std;
    const int64_t ahead = row + r.stages * step;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      const Packed<T, kVec> x = Ring::x(stage, w), dy = Ring::dy(stage, w);
      float scale[kVec], dx[kVec];
      scale_of(w, scale);
#pragma unroll
      for (int k = 0; k < kVec; ++k) dx[k] = inv_std * (dy[k] * scale[k] - ((x[k] - mean) * second + first));
      if (has(w) && row < r.rows) Packed<T, kVec>::store(static_cast<T*>(a.out) + row * r.columns + column(w), dx);
      Ring::fetch(a, stage, w, ahead * r.columns + column(w), ahead < r.rows && has(w));
      commit(w);
    }
  }
  griddep_launch_dependents();
  cp_async_wait_group<0>();

  join_block_rows<kVec, kVectors>(r, slice, reinterpret_cast<float2*>(dynamic), dscale, dbias);
  if (slice.row_in_block == 0)
    store_partials<kVec, kVectors>(r, slice, partials + int64_t(blockIdx.x / r.blocks) * r.columns, dscale, dbias);
}

}  // namespace minidnn
