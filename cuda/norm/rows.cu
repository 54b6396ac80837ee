// SPDX-License-Identifier: Apache-2.0
// Norms of contiguous rows that stay in registers, so that x, and backward dy, are read once: W vectors a thread, by a
// warp or more a row, a block, or a cluster of blocks whose sums meet in shared memory (sm_90).
//
// Forward: the mean of the values, then deviations from it, whose own mean corrects it and their squares: what the
// first sum loses where |mean| >> std is found again. Backward: blocks walk over rows, a step of the grid at a time, so
// that a thread keeps the sums of its columns' dscale and dbias; a second launch joins those of all blocks in order.
#include "cpp/norm/row_norm_math.h"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/norm/rows.h"
#include "cuda/norm/split.cuh"

namespace minidnn {

constexpr int kMostWarps = 32;
// Blocks at a row. Before sm_90 there is one, and no instruction for others.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool several_blocks(const NormRows& r) { return r.blocks > 1; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows& r) { return r.blocks == 1 ? 0 : cluster_rank(); }
__device__ __forceinline__ void sync_blocks() { cluster_sync(); }
__device__ __forceinline__ float2 sums_of_block(const float2* sums, uint32_t block) {
  float2 some;
  load_of_block<1>(&some.x, shared_address(&sums->x), block);
  load_of_block<1>(&some.y, shared_address(&sums->y), block);
  return some;
}
#else
__device__ __forceinline__ bool several_blocks(const NormRows&) { return false; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows&) { return 0; }
__device__ __forceinline__ void sync_blocks() {}
__device__ __forceinline__ float2 sums_of_block(const float2* sums, uint32_t) { return *sums; }
#endif

// Two sums over the threads of a row, the same bits in each. `slots` alternate from call to call: a warp that is ahead
// by one call writes beside what others still read, and it can not be ahead by two.
struct RowSums {
  float2 of_warp[2][kMostWarps];
  float2 of_block[2];
};
__device__ __forceinline__ float2 row_sums(const NormRows& r, RowSums& shared, int slot, float a, float b) {
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) {
    a += __shfl_xor_sync(0xffffffff, a, lane);
    b += __shfl_xor_sync(0xffffffff, b, lane);
  }
  if (r.threads == 32) return {a, b};
  const uint32_t warps = r.threads / 32, warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) shared.of_warp[slot][warp] = {a, b};
  __syncthreads();
  const uint32_t first = warp / warps * warps;
  a = 0, b = 0;
#pragma unroll 4
  for (uint32_t w = first; w < first + warps; ++w) {
    const float2 some = shared.of_warp[slot][w];
    a += some.x, b += some.y;
  }
  if (!several_blocks(r)) return {a, b};
  if (threadIdx.x == 0) shared.of_block[slot] = {a, b};
  sync_blocks();
  a = 0, b = 0;
#pragma unroll 1
  for (uint32_t block = 0; block < r.blocks; ++block) {
    const float2 some = sums_of_block(&shared.of_block[slot], block);
    a += some.x, b += some.y;
  }
  return {a, b};
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

// The parameters of a vector's elements.
template <int V>
__device__ __forceinline__ void read_parameters(float (&p)[V], const void* from, int64_t at, float none) {
  if (!from) {
#pragma unroll
    for (int k = 0; k < V; ++k) p[k] = none;
  } else if constexpr (V == 1) p[0] = typed<float>(from)[at];
  else {
#pragma unroll
    for (int k = 0; k < V; k += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(typed<float>(from) + at + k));
      p[k] = four.x, p[k + 1] = four.y, p[k + 2] = four.z, p[k + 3] = four.w;
    }
  }
}
template <int V>
__device__ __forceinline__ void parameters_of(const NormRows& r, int64_t row, uint32_t vector, const void* from,
                                              float none, float (&p)[V]) {
  if (r.groups == 0) return read_parameters<V>(p, from, int64_t(vector) * V, none);
  const int64_t channel = row % r.groups * r.of_group + r.span.quotient(vector);
  const float one = from ? __ldg(typed<float>(from) + channel) : none;
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
  const float n = float(r.columns);
  float mean = 0;
  if (r.centered) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (has[w]) {
#pragma unroll
        for (int k = 0; k < V; ++k) sum += v[w][k];
      }
    mean = row_sums(r, shared, 0, sum, 0).x / n;
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
  const float2 sums = row_sums(r, shared, 1, away, squares);
  const float rest = r.centered ? sums.x / n : 0.f;
  const float var = max_or_nan(sums.y / n - rest * rest, 0.f);
  const float inv_std = norm::inverse_std(var, a.eps);
  if (exists && part.first == 0) {
    if (r.centered) static_cast<float*>(a.mean)[row] = mean + rest;
    static_cast<float*>(a.inv_std)[row] = inv_std;
  }
  T* out = static_cast<T*>(a.out) + row * r.columns;
#pragma unroll
  for (int w = 0; w < W; ++w)
    if (has[w]) {
      const uint32_t vector = part.first + w * part.step;
      float scale[V], bias[V], y[V];
      parameters_of<V>(r, row, vector, a.scale, 1, scale);
      parameters_of<V>(r, row, vector, a.bias, 0, bias);
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] = ((v[w][k] - mean) - rest) * inv_std * scale[k] + bias[k];
      Packed<T, V>::store(out + int64_t(vector) * V, y);
    }
  if (several_blocks(r)) sync_blocks();  // others may still read this block's sums
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
    const float2 sums = row_sums(r, shared, slot, first, second);
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
  if (several_blocks(r)) sync_blocks();
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
