// SPDX-License-Identifier: Apache-2.0
// Batch norm in one launch. The blocks of a cluster load all elements of a channel (or of a tile of adjacent channels)
// to shared memory, exchange their sums, and compute the result from shared memory.
// - Grid: one cluster per channel or tile. Before sm_90, a cluster is one block.
// - Shared memory, in this order: a table with the sums of all blocks, the coefficients of each channel, scratch for
//   adding up the sums of the block's threads, x, dy.
// - Bytes: x (in backward, x and dy) is read once.
// - Copies: a thread starts all of its copies, in four stages, and then waits for one stage at a time. A thread reads
//   only vectors that it has copied itself, so the copies need no barrier.
// - Sums: the formulas of channel_sums.cuh. All blocks of a cluster receive the sums of all blocks, and compute the
//   same coefficients.
#include "cuda/batch_norm/persistent_params.h"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/norm/channel_sums.cuh"

namespace minidnn {

// Devices before sm_90 have no clusters. For these devices, a cluster is one block, and the functions that communicate
// in a cluster do nothing.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool is_single_block(const ChannelTiling& s) { return s.chunks == 1; }
__device__ __forceinline__ void wait_cluster_start() { cluster_sync_relaxed(); }
// Stores v in the shared memory of another block of the cluster, at the offset of `to` in this block's shared memory.
__device__ __forceinline__ void store_in_cluster(float4* to, uint32_t block, const float4& v) {
  st_cluster(mapa(cvta_to_shared(to), block), v.x, v.y, v.z, v.w);
}
__device__ __forceinline__ void sync_cluster() { cluster_sync(); }
#else
__device__ __forceinline__ bool is_single_block(const ChannelTiling&) { return true; }
__device__ __forceinline__ void wait_cluster_start() {}
__device__ __forceinline__ void store_in_cluster(float4*, uint32_t, const float4&) {}
__device__ __forceinline__ void sync_cluster() {}
#endif

// The vectors that one thread processes: from, from + by, from + 2 * by and so on, below `end`. The numbers count the
// vectors of a channel (NCHW) or the rows (NHWC). In shared memory, consecutive vectors of the thread are `stride`
// vectors apart.
struct ThreadSlice {
  uint4 *x, *dy;
  uint32_t from, by, end, stride;
  template <class Tile> __device__ ThreadSlice(const PersistentTiling& r, const Tile& tile, uint4* block_vectors) {
    x = block_vectors + threadIdx.x;
    dy = x + r.block_vectors;
    end = tile.end;
    if constexpr (Tile::kColumns) {
      from = tile.begin + tile.row;
      by = r.channels.rows;
      stride = by * r.channels.width;
    } else {
      from = tile.begin + threadIdx.x;
      by = stride = blockDim.x;
    }
  }
  __device__ __forceinline__ uint32_t item(uint32_t i) const { return from + i * by; }
};

// Waits until this thread's copies of the stages 0 to `stage` are complete.
template <uint32_t kLast = kStages - 1> __device__ __forceinline__ void wait_stage(uint32_t stage) {
  if constexpr (kLast > 0)
    if (stage < kLast) return wait_stage<kLast - 1>(stage);
  cp_async_wait_group<kStages - 1 - kLast>();
}

// Up to kVectorsAtOnce vectors of x and of dy, read from shared memory. `have` is the number of vectors of each.
// `others` receives the vectors of a third tensor in global memory, if there is one.
template <class T, int kVec> struct Batch {
  static constexpr int kUnroll = kVectorsAtOnce;
  Vec<T, kVec> x[kUnroll], dy[kUnroll], other[kUnroll];
  int64_t at[kUnroll];
  uint32_t have = 0;
  template <class Tile>
  __device__ __forceinline__ Batch(const Tile& tile, const ThreadSlice& mine, uint32_t i, bool backward,
                                   const void* others) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) at[u] = tile.offset(mine.item(i + u));
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (mine.item(i + u) < mine.end) {
        x[u] = Vec<T, kVec>::load(mine.x + (i + u) * mine.stride);
        if (backward) dy[u] = Vec<T, kVec>::load(mine.dy + (i + u) * mine.stride);
        ++have;
      }
    if (others) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (u < have) other[u] = Vec<T, kVec>::load(typed<T>(others) + at[u]);
    }
  }
};

// For NCHW: adds up the sums of a block, and sends the result to all blocks of the cluster as one float4.
template <bool kBackward>
__device__ __forceinline__ void all_gather_sums(const PersistentTiling& r, float4* table, uint32_t chunk, void* scratch,
                                                typename SumsOf<kBackward>::type total, float about) {
  using Sums = typename SumsOf<kBackward>::type;
  Sums* const of_warp = static_cast<Sums*>(scratch);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  total.join_warp();
  if (lane == 0) of_warp[warp] = total;
  __syncthreads();
  if (warp != 0) return;
  total = {};
  if (lane < blockDim.x / 32) total = of_warp[lane];
  total.join_warp();
  const float4 partial = partial_of(total, about);
  if (is_single_block(r.channels)) {
    if (lane == 0) *table = partial;
  } else if (lane < r.channels.chunks) store_in_cluster(table + chunk, lane, partial);
}
template <bool kBackward, int kVec, class Adds>
__device__ __forceinline__ void all_gather_sums(const PersistentTiling& r, float4* table, const ColumnTile<kVec>& tile,
                                                void* scratch, const Adds& adds) {
  using Joined = typename Adds::Joined;
  const ChannelTiling& s = r.channels;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float* const shifts = static_cast<float*>(scratch);
  void* const left = shifts + (kBackward ? 0 : s.width * kVec);
  float shift[kVec]{};
  Joined total = adds.relative_to_block(tile, shifts, shift);
  uint32_t row = tile.row, rows = s.rows, column = threadIdx.x - row * s.width;
  if (r.within_warps) {
    total.join_lanes(s.width);
    rows = warps;
    // The function join_lanes() adds up sums over a warp. It leaves the results in the first `width` lanes of the warp.
    row = lane < s.width ? warp : warps;
  }
  join_rows(total, static_cast<Joined*>(left), rows, s.width, row, column);
  float4* const columns = static_cast<float4*>(left);
  if (row == 0) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) columns[column * kVec + k] = total.partial(k, shift[k]);
  }
  __syncthreads();
  float4* const here = table + tile.chunk * r.statistics;
  if (s.by_group.divisor == 1) {
    for (uint32_t c = threadIdx.x; c < r.statistics; c += blockDim.x) {
      if (is_single_block(s)) here[c] = columns[c];
      else {
#pragma unroll 1
        for (uint32_t block = 0; block < s.chunks; ++block) store_in_cluster(here + c, block, columns[c]);
      }
    }
    return;
  }
  const uint32_t group = s.by_group.divisor;
#pragma unroll 1
  for (uint32_t c = warp; c < r.statistics; c += warps) {
    const float4* const mine = columns + c * group;
    const double about = mean_of(*mine);
    typename FinishOf<kBackward>::type sums{};
#pragma unroll 1
    for (uint32_t i = lane; i < group; i += 32) sums.add(mine[i], about);
    sums.join_warp();
    float4 partial;
    if constexpr (kBackward) partial = {float(sums.dy), float(sums.product), 0, 0};
    else {
      const double n = double(mine->x) * double(group);
      const float from = float(about);
      partial = {float(n), float(about - double(from) + sums.away / n), float(sums.squares_of(n)), from};
    }
    if (is_single_block(s)) {
      if (lane == 0) here[c] = partial;
    } else if (lane < s.chunks) store_in_cluster(here + c, lane, partial);
  }
}

template <class T, bool kBackward, bool kColumns>
__global__ void __launch_bounds__(persistent_threads(kBackward, kColumns))
    batch_norm_persistent(const __grid_constant__ PersistentTiling r, BatchNormArgs a) {
  constexpr int kVec = 16 / int(sizeof(T)), kUnroll = kVectorsAtOnce;
  extern __shared__ uint4 shared[];
  const ChannelTiling& s = r.channels;
  const typename TileOf<T, kVec, kColumns>::type tile(s, blockIdx.x);
  float4* const table = reinterpret_cast<float4*>(shared);
  ChannelCoefficients* const lines = reinterpret_cast<ChannelCoefficients*>(table + s.chunks * r.statistics);
  void* const scratch = lines + r.statistics;
  const ThreadSlice mine(r, tile, shared + r.sums_bytes / sizeof(uint4));

  const int64_t first = int64_t(s.by_chunks.quotient(blockIdx.x)) * r.statistics;  // the first channel of this cluster
  float about = 0;
  typename SumsOf<kBackward>::type total{};
  typename ColumnAddsOf<kVec, kBackward>::type adds{};
  if constexpr (kColumns && kBackward) {
    if (!tile.idle) {
#pragma unroll
      for (int k = 0; k < kVec; ++k)
        adds.mean[k] = typed<float>(a.mean)[s.by_group.quotient(uint32_t(tile.channel + k))];
    }
  } else if constexpr (!kColumns)
    about = kBackward ? typed<float>(a.mean)[first] : float(typed<T>(a.x)[first * s.plane]);

  const uint32_t x_to = cvta_to_shared(mine.x), dy_to = cvta_to_shared(mine.dy);
#pragma unroll 1
  for (uint32_t begin = 0; begin < kStages * r.stage_vectors; begin += r.stage_vectors) {
#pragma unroll 1
    for (uint32_t i = begin; i < begin + r.stage_vectors; i += kUnroll) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint32_t item = mine.item(i + u), slot = (i + u) * mine.stride * 16;
        const int64_t at = tile.offset(item);
        cp_async<16>(x_to + slot, typed<T>(a.x) + at, 1, item < mine.end);
        if constexpr (kBackward) cp_async<16>(dy_to + slot, typed<T>(a.dy) + at, 1, item < mine.end);
      }
    }
    cp_async_commit_group();
  }
  if (!is_single_block(s)) wait_cluster_start();
#pragma unroll 1
  for (uint32_t stage = 0; stage < kStages; ++stage) {
    wait_stage(stage);
#pragma unroll 1
    for (uint32_t i = stage * r.stage_vectors; i < (stage + 1) * r.stage_vectors && mine.item(i) < mine.end;
         i += kUnroll) {
      Batch<T, kVec> batch(tile, mine, i, kBackward, kBackward ? a.other : nullptr);
      if constexpr (kBackward) {
        if (a.other) {
#pragma unroll
          for (int u = 0; u < kUnroll; ++u)
            if (u < batch.have) {
              keep_where_positive(batch.dy[u], batch.other[u]);
              *reinterpret_cast<Vec<T, kVec>*>(mine.dy + (i + u) * mine.stride) = batch.dy[u];
            }
        }
        if constexpr (kColumns) adds.add(batch.x, batch.dy, batch.have);
        else add_vectors<T, kVec, kUnroll>(total, batch.x, batch.dy, batch.have, about);
      } else {
        if constexpr (kColumns) adds.add(batch.x, batch.have);
        else add_vectors<T, kVec, kUnroll>(total, batch.x, batch.have, about);
      }
    }
  }
  if constexpr (kColumns) all_gather_sums<kBackward>(r, table, tile, scratch, adds);
  else all_gather_sums<kBackward>(r, table, tile.chunk, scratch, total, about);
  if (is_single_block(s)) __syncthreads();
  else sync_cluster();

#pragma unroll 1
  for (uint32_t c = threadIdx.x; c < r.statistics && first + c < s.parameters; c += blockDim.x) {
    typename FinishOf<kBackward>::type all{};
    const double from = kBackward ? 0 : mean_of(table[c]);
#pragma unroll 1
    for (uint32_t block = 0; block < s.chunks; ++block) all.add(table[block * r.statistics + c], from);
    const Statistic of = statistic_of(s, a, first + c, from, all);
    lines[c] = line_of<kBackward>(s, a, first + c, of.first, of.second);
    if (tile.chunk == 0) write_statistic<kBackward>(s, a, first + c, of);
  }
  __syncthreads();

  ChannelCoefficients line[kColumns ? kVec : 1];
  if constexpr (kColumns) {
    const uint32_t column = (threadIdx.x - tile.row * s.width) * kVec;
#pragma unroll
    for (int k = 0; k < kVec; ++k) line[k] = lines[s.by_group.quotient(column + k)];
  } else line[0] = lines[0];
#pragma unroll 1
  for (uint32_t i = 0; mine.item(i) < mine.end; i += kUnroll) {
    const Batch<T, kVec> batch(tile, mine, i, kBackward, kBackward ? nullptr : a.other);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (u < batch.have) map_vector<T, kVec, kBackward>(a, batch.at[u], batch.x[u], batch.dy[u], batch.other[u], line);
  }
}

}  // namespace minidnn
