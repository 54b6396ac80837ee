// SPDX-License-Identifier: Apache-2.0
// Batch norm in one launch. The blocks of a cluster hold all elements of a channel, or of a tile of neighbouring
// channels, in shared memory, exchange their sums, and compute the result from there.
// - Grid: one cluster (sm_90; before, one block) per channel or tile.
// - Shared memory, in this order: the sums of all blocks (table), lines, scratch for the sums of the block's threads,
//   x, dy.
// - Bytes: x, and backward dy, are read once.
// - Copies: a thread starts all of its copies first, then waits for them a portion at a time. No other thread reads its
//   vectors, so the copies need no barrier.
// - Sums: those of cuda.norm.split (sums.cuh), joined by warps, then by block. Each block sends its sums to all blocks
//   of the cluster, and all compute equal lines from them.
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/norm/sums.cuh"

namespace minidnn {

// Before sm_90 a cluster is one block, as there are no instructions for clusters.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool alone(const NormSplit& s) { return s.chunks == 1; }
__device__ __forceinline__ void await_blocks() { cluster_sync_relaxed(); }
// Stores v at the same shared memory offset in another block of the cluster.
__device__ __forceinline__ void give(float4* to, uint32_t block, const float4& v) {
  st_cluster(mapa(cvta_to_shared(to), block), v.x, v.y, v.z, v.w);
}
__device__ __forceinline__ void meet_blocks() { cluster_sync(); }
#else
__device__ __forceinline__ bool alone(const NormSplit&) { return true; }
__device__ __forceinline__ void await_blocks() {}
__device__ __forceinline__ void give(float4*, uint32_t, const float4&) {}
__device__ __forceinline__ void meet_blocks() {}
#endif

// A thread's vectors: items from, from + by, ... below end. In shared memory they are `stride` vectors apart.
struct ThreadSlice {
  uint4 *x, *dy;
  uint32_t from, by, end, stride;
  template <class Cut> __device__ ThreadSlice(const NormResident& r, const Cut& cut, uint4* held) {
    x = held + threadIdx.x, dy = x + r.held, end = cut.end;
    if constexpr (Cut::kColumns) from = cut.begin + cut.row, by = r.split.rows, stride = by * r.split.width;
    else from = cut.begin + threadIdx.x, by = stride = blockDim.x;
  }
  __device__ __forceinline__ uint32_t item(uint32_t i) const { return from + i * by; }
};

// Waits until all portions up to `portion` have arrived.
template <uint32_t last = kNormPortions - 1> __device__ __forceinline__ void await_portion(uint32_t portion) {
  if constexpr (last > 0)
    if (portion < last) return await_portion<last - 1>(portion);
  cp_async_wait_group<kNormPortions - 1 - last>();
}

// A thread's next kNormHeldBatch vectors, from shared memory; `have` of them exist. `other`: the same elements of the
// tensor `others`, if there is one.
template <class T, int V> struct Batch {
  static constexpr int U = kNormHeldBatch;
  Packed<T, V> x[U], dy[U], other[U];
  int64_t at[U];
  uint32_t have = 0;
  template <class Cut>
  __device__ __forceinline__ Batch(const Cut& cut, const ThreadSlice& mine, uint32_t i, bool backward,
                                   const void* others) {
#pragma unroll
    for (int u = 0; u < U; ++u) at[u] = cut.offset(mine.item(i + u));
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (mine.item(i + u) < mine.end) {
        x[u].raw = mine.x[(i + u) * mine.stride];
        if (backward) dy[u].raw = mine.dy[(i + u) * mine.stride];
        ++have;
      }
    if (others) {
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (u < have) other[u].load(typed<T>(others) + at[u]);
    }
  }
};

// Joins the sums of a block's threads and sends them to all blocks of the cluster, one float4 per statistic. This
// overload is for planes, which have one channel; the next one is for columns.
template <bool backward>
__device__ __forceinline__ void share_sums(const NormResident& r, float4* table, uint32_t chunk, void* scratch,
                                           typename SumsOf<backward>::type total, float about) {
  using Sums = typename SumsOf<backward>::type;
  Sums* const of_warp = static_cast<Sums*>(scratch);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  total.join_warp();
  if (lane == 0) of_warp[warp] = total;
  __syncthreads();
  if (warp != 0) return;
  total = {};
  if (lane < blockDim.x / 32) total = of_warp[lane];
  total.join_warp();
  const float4 part = partial_of(total, about);
  if (alone(r.split)) {
    if (lane == 0) *table = part;
  } else if (lane < r.split.chunks) give(table + chunk, lane, part);
}
template <bool backward, int V, class Adds>
__device__ __forceinline__ void share_sums(const NormResident& r, float4* table, const ColumnCut<V>& cut, void* scratch,
                                           const Adds& adds) {
  using Joined = typename Adds::Joined;
  const NormSplit& s = r.split;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float* const shifts = static_cast<float*>(scratch);
  void* const left = shifts + (backward ? 0 : s.width * V);
  float shift[V]{};
  Joined total = adds.settled(cut, shifts, shift);
  uint32_t row = cut.row, rows = s.rows, column = threadIdx.x - row * s.width;
  if (r.within_warps) {
    total.join_lanes(s.width);
    rows = warps, row = lane < s.width ? warp : warps;  // from here on, each warp has one row
  }
  join_rows(total, static_cast<Joined*>(left), rows, s.width, row, column);
  float4* const columns = static_cast<float4*>(left);
  if (row == 0) {
#pragma unroll
    for (int k = 0; k < V; ++k) columns[column * V + k] = total.partial(k, shift[k]);
  }
  __syncthreads();
  float4* const here = table + cut.chunk * r.statistics;
  if (s.by_group.divisor == 1) {
    for (uint32_t c = threadIdx.x; c < r.statistics; c += blockDim.x) {
      if (alone(s)) here[c] = columns[c];
      else {
#pragma unroll 1
        for (uint32_t block = 0; block < s.chunks; ++block) give(here + c, block, columns[c]);
      }
    }
    return;
  }
  const uint32_t group = s.by_group.divisor;
#pragma unroll 1
  for (uint32_t c = warp; c < r.statistics; c += warps) {
    const float4* const mine = columns + c * group;
    const double about = mean_of(*mine);
    typename FinishOf<backward>::type sums{};
#pragma unroll 1
    for (uint32_t i = lane; i < group; i += 32) sums.add(mine[i], about);
    sums.join_warp();
    float4 part;
    if constexpr (backward) part = {float(sums.dy), float(sums.product), 0, 0};
    else {
      const double n = double(mine->x) * double(group);
      const float from = float(about);
      part = {float(n), float(about - double(from) + sums.away / n), float(sums.squares_of(n)), from};
    }
    if (alone(s)) {
      if (lane == 0) here[c] = part;
    } else if (lane < s.chunks) give(here + c, lane, part);
  }
}

template <class T, bool backward, bool columns>
__global__ void __launch_bounds__(resident_threads(backward, columns))
    norm_resident(const __grid_constant__ NormResident r, NormArgs a) {
  constexpr int V = 16 / int(sizeof(T)), U = kNormHeldBatch;
  extern __shared__ uint4 shared[];
  const NormSplit& s = r.split;
  const typename CutOf<T, V, columns>::type cut(s, blockIdx.x);
  float4* const table = reinterpret_cast<float4*>(shared);
  NormLine* const lines = reinterpret_cast<NormLine*>(table + s.chunks * r.statistics);
  void* const scratch = lines + r.statistics;
  const ThreadSlice mine(r, cut, shared + r.meeting_bytes / sizeof(uint4));

  const int64_t first = int64_t(s.by_chunks.quotient(blockIdx.x)) * r.statistics;  // first statistic of the cluster
  float about = 0;
  typename SumsOf<backward>::type total{};
  typename ColumnAddsOf<V, backward>::type adds{};
  if constexpr (columns && backward) {
    if (!cut.idle) {
#pragma unroll
      for (int k = 0; k < V; ++k) adds.mean[k] = typed<float>(a.mean)[s.by_group.quotient(uint32_t(cut.channel + k))];
    }
  } else if constexpr (!columns) about = backward ? typed<float>(a.mean)[first] : float(typed<T>(a.x)[first * s.plane]);

  const uint32_t x_to = cvta_to_shared(mine.x), dy_to = cvta_to_shared(mine.dy);
#pragma unroll 1
  for (uint32_t portion = 0; portion < kNormPortions * r.portion; portion += r.portion) {
#pragma unroll 1
    for (uint32_t i = portion; i < portion + r.portion; i += U) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const uint32_t item = mine.item(i + u), slot = (i + u) * mine.stride * 16;
        const int64_t at = cut.offset(item);
        cp_async<16>(x_to + slot, typed<T>(a.x) + at, 1, item < mine.end);
        if constexpr (backward) cp_async<16>(dy_to + slot, typed<T>(a.dy) + at, 1, item < mine.end);
      }
    }
    cp_async_commit_group();
  }
  if (!alone(s)) await_blocks();
#pragma unroll 1
  for (uint32_t portion = 0; portion < kNormPortions; ++portion) {
    await_portion(portion);
#pragma unroll 1
    for (uint32_t i = portion * r.portion; i < (portion + 1) * r.portion && mine.item(i) < mine.end; i += U) {
      Batch<T, V> some(cut, mine, i, backward, backward ? a.other : nullptr);
      if constexpr (backward) {
        if (a.other) {
#pragma unroll
          for (int u = 0; u < U; ++u)
            if (u < some.have) {
              some.dy[u].keep_where_positive(some.other[u]);
              mine.dy[(i + u) * mine.stride] = some.dy[u].raw;
            }
        }
        if constexpr (columns) adds.add(some.x, some.dy, some.have);
        else add_vectors<T, V, U>(total, some.x, some.dy, some.have, about);
      } else {
        if constexpr (columns) adds.add(some.x, some.have);
        else add_vectors<T, V, U>(total, some.x, some.have, about);
      }
    }
  }
  if constexpr (columns) share_sums<backward>(r, table, cut, scratch, adds);
  else share_sums<backward>(r, table, cut.chunk, scratch, total, about);
  if (alone(s)) __syncthreads();
  else meet_blocks();

#pragma unroll 1
  for (uint32_t c = threadIdx.x; c < r.statistics && first + c < s.parameters; c += blockDim.x) {
    typename FinishOf<backward>::type all{};
    const double from = backward ? 0 : mean_of(table[c]);
#pragma unroll 1
    for (uint32_t block = 0; block < s.chunks; ++block) all.add(table[block * r.statistics + c], from);
    const Statistic of = statistic_of(s, a, first + c, from, all);
    lines[c] = line_of<backward>(s, a, first + c, of.first, of.second);
    if (cut.chunk == 0) write_statistic<backward>(s, a, first + c, of);
  }
  __syncthreads();

  NormLine line[columns ? V : 1];
  if constexpr (columns) {
    const uint32_t column = (threadIdx.x - cut.row * s.width) * V;
#pragma unroll
    for (int k = 0; k < V; ++k) line[k] = lines[s.by_group.quotient(column + k)];
  } else line[0] = lines[0];
#pragma unroll 1
  for (uint32_t i = 0; mine.item(i) < mine.end; i += U) {
    const Batch<T, V> some(cut, mine, i, backward, backward ? nullptr : a.other);
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (u < some.have) map_vector<T, V, backward>(a, some.at[u], some.x[u], some.dy[u], some.other[u], line);
  }
}

}  // namespace minidnn
