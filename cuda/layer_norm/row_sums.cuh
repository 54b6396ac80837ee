// SPDX-License-Identifier: Apache-2.0
// Code that the kernels of cuda.layer_norm.persistent_rows share: which elements of a row a thread has, and sums over
// the threads of a row. The threads of a row are some lanes of a warp, one or more warps, a block, or a cluster of
// blocks (sm_90).
#pragma once
#include "cpp/layer_norm/layer_norm_math.h"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/layer_norm/persistent_rows_params.h"
#include "cuda/norm/moments.cuh"
#include "cuda/norm/parameters.cuh"

namespace minidnn {

constexpr int kMaxWarps = 32, kMaxBlocks = 16;

// Shared memory for the sums of kRows rows, with one buffer for even and one for odd iterations. Two buffers suffice,
// because no warp can be two iterations ahead of another.
template <int kRows> struct RowSums {
  float4 of_warp[2][kRows][kMaxWarps];
  float4 of_block[2][kRows][kMaxBlocks];
  uint64_t arrived[2];  // two mbarriers, which complete when the sums of all blocks have arrived
};

// The exchange of sums between the blocks of a cluster.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool several_blocks(const RowTiling& r) { return r.blocks > 1; }
__device__ __forceinline__ uint32_t block_of_row(const RowTiling& r) { return r.blocks == 1 ? 0 : cluster_ctarank(); }
// Initialises the mbarriers, then waits until all blocks of the cluster run, because a block must not write to the
// shared memory of a block that has not started.
template <int kRows> __device__ __forceinline__ void init_cluster(RowSums<kRows>& shared) {
  if (threadIdx.x == 0) {
    mbarrier_init(cvta_to_shared(&shared.arrived[0]), 1);
    mbarrier_init(cvta_to_shared(&shared.arrived[1]), 1);
    fence_mbarrier_init();
  }
  cluster_sync_relaxed();
}
// Sends the sums of a block to all blocks of the cluster, and waits for the sums of all blocks. Two buffers suffice,
// because a block sends the sums of iteration i + 1 only after it has read those of iteration i.
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
  for (int lane = 1; lane < 32; lane *= 2) a += shuffle_xor(a, lane);
  return a;
}
// Returns the sum over the lanes of a warp that share a row: `threads` lanes, or the whole warp if `threads` is 32 or
// more.
__device__ __forceinline__ float row_lanes_sum(float a, uint32_t threads) {
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) a += shuffle_xor(a, lane);
  if (threads > 8) a += shuffle_xor(a, 8);
  if (threads > 16) a += shuffle_xor(a, 16);
  return a;
}

// JoinSums and JoinMoments combine one partial result per lane. All lanes obtain the same bits.
struct JoinSums {  // Adds up two independent sums, x and y, over the lanes of a warp.
  static __device__ __forceinline__ float4 of(float4 partial) {
    return {warp_sum(partial.x), warp_sum(partial.y), 0, 0};
  }
};
// Joins moments over the lanes of a warp. In a float4, x is the count, y + z is the mean (y is the mean rounded to
// float), and w is the sum of squares about the mean. Lanes with a count of 0 are ignored, but lane 0 must have
// elements. Means are taken relative to that of lane 0, so |mean| >> std costs no precision.
struct JoinMoments {
  static __device__ __forceinline__ float4 of(float4 partial) {
    const float first = shuffle(partial.y, 0);
    const float difference = partial.x > 0 ? (partial.y - first) + partial.z : 0.f;
    const float n = warp_sum(partial.x), rest = __fdividef(warp_sum(partial.x * difference), n),
                away = difference - rest;
    return {n, first, rest, warp_sum(partial.w + partial.x * away * away)};
  }
};

// Replaces the sums of a warp by the sums of the whole row, for each of kRows rows.
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

// The vectors of a row that a thread has. `row_in_block` is the index of the row within the block.
struct RowSlice {
  uint32_t row_in_block, first, step;  // The thread has the vectors first, first + step, first + 2 * step, and so on.
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

// Loads the parameters (scale or bias) for the elements of a vector, or sets them to `none` if `from` is null. In group
// norm, all elements of a vector have the same parameter.
template <int kVec>
__device__ __forceinline__ void parameters_of(const RowTiling& r, int64_t first_channel, uint32_t vector,
                                              const void* from, float none, float (&p)[kVec]) {
  if (r.groups == 0) return read_parameters<kVec>(p, from, int64_t(vector) * kVec, none);
  const float one = from ? __ldg(typed<float>(from) + first_channel + r.span.quotient(vector)) : none;
#pragma unroll
  for (int k = 0; k < kVec; ++k) p[k] = one;
}

// Waits until the oldest commit group of cp.async is complete. The calling thread has `stages` commit groups, at most
// 4.
__device__ __forceinline__ void wait_stage(uint32_t stages) {
  if (stages == 1) cp_async_wait_group<0>();
  else if (stages == 2) cp_async_wait_group<1>();
  else if (stages == 3) cp_async_wait_group<2>();
  else cp_async_wait_group<3>();
}

}  // namespace minidnn
