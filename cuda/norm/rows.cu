// SPDX-License-Identifier: Apache-2.0
// Norms of contiguous rows that stay in registers, so that x, and backward dy, are read once: W vectors a thread, by a
// warp or more a row, a block, or a cluster of blocks, each of which leaves its sums with all others (sm_90). Two
// blocks share an SM while those of 512 threads reach: one row's loads go on while another's threads meet.
//
// Forward: each warp takes the mean of its values, then deviations from it, whose own mean corrects it and their
// squares: what the first sum loses where |mean| >> std is found again. Warps, and blocks, then meet once. Backward:
// blocks walk over rows, a step of the grid at a time, so that a thread keeps the sums of its columns' dscale and dbias;
// a second launch joins those of all blocks in order.
#include "cpp/norm/row_norm_math.h"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/norm/rows.h"
#include "cuda/norm/split.cuh"

namespace minidnn {

constexpr int kMostWarps = 32, kMostBlocks = 8;
// Blocks at a row. Before sm_90 there is one, and no instruction for others.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool several_blocks(const NormRows& r) { return r.blocks > 1; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows& r) { return r.blocks == 1 ? 0 : cluster_rank(); }
// All blocks run, so that others may write to their shared memory. Where loads are under way, it costs little.
__device__ __forceinline__ void wait_for_blocks() { cluster_sync_relaxed(); }
// Thread i of each block leaves `sums` with block i, and all wait. What others write comes before the last barrier that a
// block waits at, so that it may end there.
__device__ __forceinline__ void give_to_blocks(const NormRows& r, float4* of_block, const float4& sums) {
  if (threadIdx.x < r.blocks)
    store_to_block(address_in_block(shared_address(of_block + cluster_rank()), threadIdx.x), sums.x, sums.y, sums.z,
                   sums.w);
  cluster_sync();
}
#else
__device__ __forceinline__ bool several_blocks(const NormRows&) { return false; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows&) { return 0; }
__device__ __forceinline__ void wait_for_blocks() {}
__device__ __forceinline__ void give_to_blocks(const NormRows&, float4*, const float4&) {}
#endif

__device__ __forceinline__ float warp_sum(float a) {
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) a += __shfl_xor_sync(0xffffffff, a, lane);
  return a;
}

// What the warps, then the blocks, of a row have, a lane each, as one: the same bits in each lane.
struct JoinSums {  // two sums
  static __device__ __forceinline__ float4 of(float4 part) { return {warp_sum(part.x), warp_sum(part.y), 0, 0}; }
};
// Count, mean as a float and what it lacks, squares about it; a count of 0 is no part, and the first is one. Means are
// taken from the first's, so that |mean| >> std costs nothing, and squares about the mean of all.
struct JoinMoments {
  static __device__ __forceinline__ float4 of(float4 part) {
    const float first = __shfl_sync(0xffffffff, part.y, 0);
    const float apart = part.x > 0 ? (part.y - first) + part.z : 0.f;
    const float n = warp_sum(part.x), rest = warp_sum(part.x * apart) / n, away = apart - rest;
    return {n, first, rest, warp_sum(part.w + part.x * away * away)};
  }
};

// `slots` alternate from call to call: a warp that is ahead by one call writes beside what others still read, and it can
// not be ahead by two.
struct RowSums {
  float4 of_warp[2][kMostWarps];
  float4 of_block[2][kMostBlocks];
};
template <class Join>
__device__ __forceinline__ float4 join_row(const NormRows& r, RowSums& shared, int slot, const float4& of_warp) {
  if (r.threads == 32) return of_warp;
  const uint32_t warps = r.threads / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) shared.of_warp[slot][warp] = of_warp;
  __syncthreads();
  float4 part{};
  if (lane < warps) part = shared.of_warp[slot][warp / warps * warps + lane];
  const float4 of_block = Join::of(part);
  if (!several_blocks(r)) return of_block;
  give_to_blocks(r, shared.of_block[slot], of_block);
  part = {};
  if (lane < r.blocks) part = shared.of_block[slot][lane];
  return Join::of(part);
}

// This thread's part of a row.
struct RowPart {
  uint32_t team, first, step;  // vectors first, first + step, ...
  __device__ explicit RowPart(const NormRows& r) {
    team = threadIdx.x / r.threads;
    const uint32_t in_block = threadIdx.x - team * r.threads;
    first = block_of_row(r) * r.threads + in_block;
    step = r.threads * r.blocks;
  }
};

template <int V>
__device__ __forceinline__ void parameters_of(const NormRows& r, int64_t first_channel, uint32_t vector,
                                              const void* from, float none, float (&p)[V]) {
  if (r.groups == 0) return read_parameters<V>(p, from, int64_t(vector) * V, none);
  const float one = from ? __ldg(typed<float>(from) + first_channel + r.span.quotient(vector)) : none;
#pragma unroll
  for (int k = 0; k < V; ++k) p[k] = one;
}

template <class T, int V, int W>
__global__ void __launch_bounds__(1024) norm_rows_forward(const __grid_constant__ NormRows r, RowNormArgs a) {
  __shared__ RowSums shared;
  const RowPart part(r);
  const int64_t row = int64_t(blockIdx.x / r.blocks) * r.rows_at_once + part.team;
  const bool exists = row < r.rows;
  const T* x = typed<T>(a.x) + row * r.columns;
  Packed<T, V> v[W];
  bool has[W];
#pragma unroll
  for (int w = 0; w < W; ++w) {
    has[w] = exists && part.first + w * part.step < r.vectors;
    if (has[w]) v[w].load(x + int64_t(part.first + w * part.step) * V);
  }
  if (several_blocks(r)) wait_for_blocks();
  const float n = float(r.columns);
  float sum = 0, mean = 0, rest = 0, of_warp = 0;
  if (r.centered) {
#pragma unroll
    for (int w = 0; w < W; ++w) {
      of_warp += float(V * __popc(__ballot_sync(0xffffffff, has[w])));
      if (has[w]) {
#pragma unroll
        for (int k = 0; k < V; ++k) sum += v[w][k];
      }
    }
    mean = of_warp > 0 ? warp_sum(sum) / of_warp : 0.f;
  }
  float away = 0, squares = 0;
#pragma unroll
  for (int w = 0; w < W; ++w)
    if (has[w]) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float deviation = v[w][k] - mean;
        away += deviation, squares += deviation * deviation;
      }
    }
  squares = warp_sum(squares);
  if (r.centered) {
    away = warp_sum(away);
    rest = of_warp > 0 ? away / of_warp : 0.f;
    const float4 all = join_row<JoinMoments>(r, shared, 0, {of_warp, mean, rest, squares - away * rest});
    mean = all.y, rest = all.z, squares = all.w;
  } else squares = join_row<JoinSums>(r, shared, 0, {squares, 0, 0, 0}).x;
  const float inv_std = norm::inverse_std(max_or_nan(squares / n, 0.f), a.eps);
  if (exists && part.first == 0) {
    if (r.centered) static_cast<float*>(a.mean)[row] = mean + rest;
    static_cast<float*>(a.inv_std)[row] = inv_std;
  }
  T* out = static_cast<T*>(a.out) + row * r.columns;
  const int64_t first_channel = r.groups ? row % r.groups * r.of_group : 0;
#pragma unroll
  for (int w = 0; w < W; ++w)
    if (has[w]) {
      const uint32_t vector = part.first + w * part.step;
      float scale[V], bias[V], y[V];
      parameters_of<V>(r, first_channel, vector, a.scale, 1, scale);
      parameters_of<V>(r, first_channel, vector, a.bias, 0, bias);
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] = ((v[w][k] - mean) - rest) * inv_std * scale[k] + bias[k];
      Packed<T, V>::store(out + int64_t(vector) * V, y);
    }
}

// A thread's part of a row of x and dy, none of one that does not exist.
template <class T, int V, int W> struct HeldRow {
  Packed<T, V> x[W], dy[W];
  bool has[W];
  float mean, inv_std;
  __device__ __forceinline__ void load(const NormRows& r, const RowNormArgs& a, const RowPart& part, int64_t row) {
    const bool exists = row < r.rows;
    mean = exists && r.centered ? __ldg(typed<float>(a.mean) + row) : 0.f;
    inv_std = exists ? __ldg(typed<float>(a.inv_std) + row) : 0.f;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const uint32_t vector = part.first + w * part.step;
      has[w] = exists && vector < r.vectors;
      const int64_t at = row * r.columns + int64_t(vector) * V;
      if (has[w]) x[w].load(typed<T>(a.x) + at), dy[w].load(typed<T>(a.dy) + at);
    }
  }
};

// partials: [blocks][columns] pairs of dscale and dbias.
template <class T, int V, int W>
__global__ void __launch_bounds__(512)
    norm_rows_backward(const __grid_constant__ NormRows r, RowNormArgs a, float2* partials) {
  __shared__ RowSums shared;
  const RowPart part(r);
  const float per_member = 1.f / float(r.columns);
  const int64_t step = int64_t(gridDim.x / r.blocks) * r.rows_at_once;
  float dscale[W][V]{}, dbias[W][V]{};
  int slot = 0;
  const int64_t start = int64_t(blockIdx.x / r.blocks) * r.rows_at_once;
  HeldRow<T, V, W> now;
  now.load(r, a, part, start + part.team);
  if (several_blocks(r)) wait_for_blocks();
  for (int64_t begin = start; begin < r.rows; begin += step, slot ^= 1) {
    const int64_t row = begin + part.team;
    const auto& [x, dy, has, mean, inv_std] = now;
    float first = 0, second = 0;
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (has[w]) {
        float scale[V];
        read_parameters<V>(scale, a.scale, int64_t(part.first + w * part.step) * V, 1);
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const float one = dy[w][k], x_hat = (x[w][k] - mean) * inv_std, g = one * scale[k];
          first += g, second += g * x_hat;
          dbias[w][k] += one, dscale[w][k] += one * x_hat;
        }
      }
    // The next row is under way while this one's threads meet, where registers allow it.
    constexpr bool kAhead = W <= 2;
    HeldRow<T, V, W> next;
    if constexpr (kAhead) next.load(r, a, part, row + step);
    const float4 sums = join_row<JoinSums>(r, shared, slot, {warp_sum(first), warp_sum(second), 0, 0});
    first = r.centered ? sums.x * per_member : 0.f, second = sums.y * per_member;
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (has[w]) {
        float scale[V], dx[V];
        read_parameters<V>(scale, a.scale, int64_t(part.first + w * part.step) * V, 1);
#pragma unroll
        for (int k = 0; k < V; ++k)
          dx[k] = inv_std * (dy[w][k] * scale[k] - first - (x[w][k] - mean) * inv_std * second);
        Packed<T, V>::store(static_cast<T*>(a.out) + row * r.columns + int64_t(part.first + w * part.step) * V, dx);
      }
    if constexpr (!kAhead) next.load(r, a, part, row + step);
    now = next;
  }
  // A block's rows at once join in order, through the shared memory of one.
  constexpr int kMostThreads = 128;  // of a row beside others
  __shared__ float2 other[W * V][kMostThreads];
  const uint32_t in_block = threadIdx.x - part.team * r.threads;
#pragma unroll 1
  for (uint32_t team = 1; team < r.rows_at_once; ++team) {
    __syncthreads();
    if (part.team == team) {
#pragma unroll
      for (int i = 0; i < W * V; ++i) other[i][in_block] = {dscale[i / V][i % V], dbias[i / V][i % V]};
    }
    __syncthreads();
    if (part.team == 0) {
#pragma unroll
      for (int i = 0; i < W * V; ++i) {
        const float2 more = other[i][in_block];
        dscale[i / V][i % V] += more.x, dbias[i / V][i % V] += more.y;
      }
    }
  }
  if (part.team == 0) {
    float2* to = partials + int64_t(blockIdx.x / r.blocks) * r.columns;
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (part.first + w * part.step < r.vectors) {
#pragma unroll
        for (int k = 0; k < V; ++k) to[int64_t(part.first + w * part.step) * V + k] = {dscale[w][k], dbias[w][k]};
      }
  }
}

// A block joins 32 columns: a warp takes every 16th partial result, then warps join by halves.
// A template, as what is none would be in the cubin of every kernel of this file.
template <int unused>
__global__ void __launch_bounds__(kNormFinishThreads)
    norm_rows_finish(int64_t columns, int64_t count, const float2* partials, float* dscale, float* dbias) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = int64_t(blockIdx.x) * kNormFinishChannels + lane;
  Gradients<double> total{};
  if (column < columns) {
#pragma unroll 8
    for (int64_t i = warp; i < count; i += kNormFinishWarps) {
      const float2 some = partials[i * columns + column];
      total.join({double(some.y), double(some.x)});
    }
  }
  total = join_warps(total);
  if (warp != 0 || column >= columns) return;
  dscale[column] = float(total.product);
  if (dbias) dbias[column] = float(total.dy);
}

}  // namespace minidnn
