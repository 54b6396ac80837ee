// SPDX-License-Identifier: Apache-2.0
// A stable counting sort of the indices by row.
// Method: each block sorts the indices of `rows` adjacent rows. It first counts the indices of its rows and of all
// earlier rows, which give the offset of its output. Then it collects its indices in shared memory, one tile (kSortTile
// indices) at a time, and one warp appends them to the outputs of their rows.
// Block: 1024 threads. Shared memory (static): 20 KB.
#include "cuda/device/reduce.cuh"
#include "cuda/gather/gather_params.h"

namespace minidnn {

template <bool contiguous> __global__ void __launch_bounds__(kSortThreads)
    gather_index_sort(const __grid_constant__ GatherProblem p, const void* index, GatherOrder o, int32_t rows) {
  constexpr int kWarps = kSortThreads / 32, kEach = kSortTile / kSortThreads;
  static_assert(kWarps == 32 && kSortRows <= 1 << 16 && kSortTile <= 1 << 16);
  __shared__ int32_t counts[kSortRows], of_warp[kWarps];
  // The indices of a tile that select the rows of this block. Bits 16 to 31 are the row, relative to the block's first
  // row. Bits 0 to 15 are the position in the tile.
  __shared__ uint32_t own[kSortTile];
  const int64_t indices = p.index.numel(), begin = int64_t(blockIdx.x) * rows;
  const int here = int(min_of(int64_t(rows), p.rows() - begin));
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const uint32_t below = (1u << lane) - 1;
  // The first index that the thread reads in a tile. A warp reads contiguous indices.
  const int index_in_tile = warp * (32 * kEach) + lane;
  const auto load_rows = [&](int64_t tile, int64_t(&row)[kEach]) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = tile + index_in_tile + k * 32;
      row[k] = i < indices ? (contiguous ? gather_row_at(p, index, i) : gather_row(p, index, i)) : -1;
    }
  };
  for (int r = thread; r < here; r += kSortThreads) counts[r] = 0;
  __syncthreads();
  int32_t before = 0;
  for (int64_t tile = 0; tile < indices; tile += kSortTile) {
    int64_t row[kEach];
    load_rows(tile, row);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      before += row[k] >= 0 && row[k] < begin;
      if (row[k] >= begin && row[k] < begin + here)
        // The sums are integers, so they do not depend on the order of the additions.
        atomicAdd(&counts[row[k] - begin], 1);
    }
  }
  before = warp_reduce_down(before, 32, [](int32_t x, int32_t y) { return x + y; });
  if (lane == 0) of_warp[warp] = before;
  __syncthreads();
  // Returns the inclusive prefix sum of v over the lanes of a warp.
  const auto sum_up_to = [&](int32_t v) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int32_t other = __shfl_up_sync(~0u, v, d);
      if (lane >= d) v += other;
    }
    return v;
  };
  // One warp computes the offset at which the output of each row begins. One warp is enough, because there are at most
  // kSortRows rows.
  if (warp == 0) {
    int32_t start = __shfl_sync(~0u, sum_up_to(of_warp[lane]), 31);
    for (int r = 0; r < here; r += 32) {
      const int32_t item = r + lane < here ? counts[r + lane] : 0, sum = sum_up_to(item);
      if (r + lane < here) counts[r + lane] = o.starts[begin + r + lane] = start + sum - item;
      start += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0 && begin + here == p.rows()) o.starts[p.rows()] = start;
  }
  for (int64_t tile = 0; tile < indices; tile += kSortTile) {
    int64_t row[kEach];
    uint32_t found[kEach];
    load_rows(tile, row);
    int32_t sum = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      row[k] -= begin;
      found[k] = __ballot_sync(~0u, 0 <= row[k] && row[k] < here);
      sum += __popc(found[k]);
    }
    // Waits until all warps have read of_warp, which the next statement overwrites.
    __syncthreads();
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    const int32_t up_to = sum_up_to(of_warp[lane]), all = __shfl_sync(~0u, up_to, 31);
    int32_t to = __shfl_sync(~0u, up_to, warp) - sum;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (found[k] >> lane & 1)
        own[to + __popc(found[k] & below)] = uint32_t(row[k]) << 16 | uint32_t(index_in_tile + k * 32);
      to += __popc(found[k]);
    }
    __syncthreads();
    if (warp > 0) continue;
#pragma unroll 1
    for (int i = lane; i - lane < all; i += 32) {
      const bool exists = i < all;
      const uint32_t item = exists ? own[i] : ~0u, same_row = __match_any_sync(~0u, item >> 16),
                     earlier = same_row & below;
      const int32_t start = exists ? counts[item >> 16] : 0;
      __syncwarp();
      if (exists) o.order[start + __popc(earlier)] = int32_t(tile + (item & 0xffff));
      if (exists && earlier == 0) counts[item >> 16] = start + __popc(same_row);
      __syncwarp();
    }
  }
}

}  // namespace minidnn
