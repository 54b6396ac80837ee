// SPDX-License-Identifier: Apache-2.0
// Layer, RMS and group norm of contiguous rows that are kept on chip.
// - Work division: a thread has W vectors of a row. A row has 8 or 16 lanes (forward only), one or more warps, a block,
//   or a cluster of blocks (sm_90), each of which sends its sums to all others.
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
#include "cpp/norm/row_norm_math.h"
#include "cuda/device/cluster.cuh"
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/mbarrier.cuh"
#include "cuda/norm/rows.h"
#include "cuda/norm/split.cuh"

namespace minidnn {

constexpr int kMostWarps = 32, kMostBlocks = 16;

// Shared memory for the sums of R rows. An iteration (turn) uses one of two buffers: a warp may be one iteration ahead
// of others that still read, never two.
template <int R> struct RowSums {
  float4 of_warp[2][R][kMostWarps];
  float4 of_block[2][R][kMostBlocks];
  uint64_t come[2];  // mbarriers: the sums of the other blocks have arrived
};

// The blocks of a row. Before sm_90 there is one, as there are no clusters.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ bool several_blocks(const NormRows& r) { return r.blocks > 1; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows& r) { return r.blocks == 1 ? 0 : cluster_ctarank(); }
// Waits until all blocks of the cluster run: only then may a block write to another's shared memory. The wait costs
// little while loads are in flight.
template <int R> __device__ __forceinline__ void meet_blocks(RowSums<R>& shared) {
  if (threadIdx.x == 0) {
    mbarrier_init(cvta_to_shared(&shared.come[0]), 1), mbarrier_init(cvta_to_shared(&shared.come[1]), 1);
    fence_mbarrier_init();
  }
  cluster_sync_relaxed();
}
// Sends a block's sums to all blocks of the cluster and waits for theirs. Two buffers suffice: a block writes the sums
// of turn + 2 after it has received those of turn + 1 from all blocks, and each block has read those of `turn` before
// it sends those of turn + 1.
template <int R>
__device__ __forceinline__ void exchange(const NormRows& r, RowSums<R>& shared, int turn, const float4 (&sums)[R]) {
  cluster_all_gather(r.blocks, shared.of_block[turn % 2], shared.come[turn % 2], turn / 2 % 2, sums);
}
#else
__device__ __forceinline__ bool several_blocks(const NormRows&) { return false; }
__device__ __forceinline__ uint32_t block_of_row(const NormRows&) { return 0; }
template <int R> __device__ __forceinline__ void meet_blocks(RowSums<R>&) {}
template <int R> __device__ __forceinline__ void exchange(const NormRows&, RowSums<R>&, int, const float4 (&)[R]) {}
#endif

__device__ __forceinline__ float warp_sum(float a) {
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) a += __shfl_xor_sync(0xffffffff, a, lane);
  return a;
}
// The sum over the lanes of a warp that share a row: 8, 16 or all 32.
__device__ __forceinline__ float team_sum(float a, uint32_t threads) {
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) a += __shfl_xor_sync(0xffffffff, a, lane);
  if (threads > 8) a += __shfl_xor_sync(0xffffffff, a, 8);
  if (threads > 16) a += __shfl_xor_sync(0xffffffff, a, 16);
  return a;
}

// JoinSums and JoinMoments join the partial results of a row's warps, then those of its blocks. Each lane passes one of
// them; all lanes obtain the same bits.
struct JoinSums {  // x and y: two sums
  static __device__ __forceinline__ float4 of(float4 part) { return {warp_sum(part.x), warp_sum(part.y), 0, 0}; }
};
// x: count; y: mean, rounded to float; z: the remainder of the mean; w: sum of squares about the mean. A partial result
// with a count of 0 is ignored; that of lane 0 always counts. Means are taken relative to lane 0's, so |mean| >> std
// costs no digits. The joined squares are about the mean of all.
struct JoinMoments {
  static __device__ __forceinline__ float4 of(float4 part) {
    const float first = __shfl_sync(0xffffffff, part.y, 0);
    const float apart = part.x > 0 ? (part.y - first) + part.z : 0.f;
    const float n = warp_sum(part.x), rest = __fdividef(warp_sum(part.x * apart), n), away = apart - rest;
    return {n, first, rest, warp_sum(part.w + part.x * away * away)};
  }
};

// Replaces the sums of a warp by those of the whole row, for each of R rows.
template <class Join, int R>
__device__ __forceinline__ void join_rows(const NormRows& r, RowSums<R>& shared, int turn, float4 (&sums)[R]) {
  if (r.threads <= 32) return;
  const int slot = turn % 2;
  const uint32_t warps = r.threads / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < R; ++i) shared.of_warp[slot][i][warp] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < R; ++i) {
    float4 part{};
    if (lane < warps) part = shared.of_warp[slot][i][warp / warps * warps + lane];
    sums[i] = Join::of(part);
  }
  if (!several_blocks(r)) return;
  exchange(r, shared, turn, sums);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    float4 part{};
    if (lane < r.blocks) part = shared.of_block[slot][i][lane];
    sums[i] = Join::of(part);
  }
}
template <class Join>
__device__ __forceinline__ float4 join_row(const NormRows& r, RowSums<1>& shared, int turn, const float4& of_warp) {
  float4 sums[1]{of_warp};
  join_rows<Join>(r, shared, turn, sums);
  return sums[0];
}

// The vectors of a row that this thread has. team: index of the row among those that the block processes together.
struct RowPart {
  uint32_t team, first, step;  // vectors first, first + step, ...
  __device__ explicit RowPart(const NormRows& r) {
    team = threadIdx.x / r.threads;
    const uint32_t in_block = threadIdx.x - team * r.threads;
    first = block_of_row(r) * r.threads + in_block;
    step = r.threads * r.blocks;
  }
};

// The parameters of a vector; `none` if there are none. Group norm: one parameter for all its elements.
template <int V>
__device__ __forceinline__ void parameters_of(const NormRows& r, int64_t first_channel, uint32_t vector,
                                              const void* from, float none, float (&p)[V]) {
  if (r.groups == 0) return read_parameters<V>(p, from, int64_t(vector) * V, none);
  const float one = from ? __ldg(typed<float>(from) + first_channel + r.span.quotient(vector)) : none;
#pragma unroll
  for (int k = 0; k < V; ++k) p[k] = one;
}

// Forward, short rows, in registers. Grid: one block per r.rows_at_once rows, or one cluster of r.blocks blocks per
// row.
template <class T, int V, int W>
__global__ void __launch_bounds__(1024) norm_rows_forward(const __grid_constant__ NormRows r, RowNormArgs a) {
  __shared__ RowSums<1> shared;
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
  if (several_blocks(r)) meet_blocks(shared);
  const float n = float(r.columns);
  // Of a warp; of a row where several rows share a warp. held: elements; each: 1 / held.
  float mean = 0, rest = 0, held = 0, each = 0;
  if (r.centered) {
    float sum = 0, firsts = 0;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      held += float(V * __popc(__ballot_sync(0xffffffff, has[w])));
      if (w == 0) firsts = held;
    }
    if (r.threads < 32) held = n, firsts = float(V * min_of(r.vectors, r.threads));
    if (has[0]) {
#pragma unroll
      for (int k = 0; k < V; ++k) sum += v[0][k];
    }
    each = held > 0 ? 1.f / held : 0.f;
    mean = firsts > 0 ? __fdividef(team_sum(sum, r.threads), firsts) : 0.f;
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
  squares = team_sum(squares, r.threads);
  if (r.centered) {
    away = team_sum(away, r.threads);
    rest = away * each;
    const float4 all = join_row<JoinMoments>(r, shared, 0, {held, mean, rest, squares - away * rest});
    mean = all.y, rest = all.z, squares = all.w;
  } else squares = join_row<JoinSums>(r, shared, 0, {squares, 0, 0, 0}).x;
  const float inv_std = norm::inverse_std(max_or_nan(squares * r.per_column, 0.f), a.eps);
  if (exists && part.first == 0) {
    if (r.centered) static_cast<float*>(a.mean)[row] = mean + rest;
    static_cast<float*>(a.inv_std)[row] = inv_std;
  }
  const float shift = rest * inv_std;
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
      for (int k = 0; k < V; ++k) y[k] = ((v[w][k] - mean) * inv_std - shift) * scale[k] + bias[k];
      Packed<T, V>::store(out + int64_t(vector) * V, y);
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
template <int V, int W> constexpr int kBlocksOfSm = V * W <= kNormRowsShared ? 2 : 1;

// Waits until commit group w of W is complete.
template <int W, int i = 0> __device__ __forceinline__ void wait_group(int w) {
  if (w == i) cp_async_wait_group<W - 1 - i>();
  else if constexpr (i + 1 < W) wait_group<W, i + 1>(w);
}

// Forward, long rows. Persistent clusters of r.blocks blocks: each iteration normalises R rows of shared memory while
// the rows of the next iterations are in flight. The parameters of a thread's columns are kept in registers. A thread
// reads only what it has copied itself. Shared memory: vectors [r.stages][R][W][threads].
template <class T, int V, int W>
__global__ void __launch_bounds__(kNormRowsThreads)
    norm_rows_stream(const __grid_constant__ NormRows r, RowNormArgs a) {
  constexpr int R = norm_rows_a_turn(V);
  extern __shared__ uint4 dynamic[];
  __shared__ RowSums<R> shared;
  const RowPart part(r);
  const int64_t start = int64_t(blockIdx.x / r.blocks) * R, step = int64_t(gridDim.x / r.blocks) * R;
  auto has = [&](int w) { return part.first + w * part.step < r.vectors; };
  auto place = [&](int w) { return int64_t(part.first + w * part.step) * V; };
  auto slot_of = [&](uint32_t stage) {
    return reinterpret_cast<Packed<T, V>*>(dynamic) + stage * (R * W * blockDim.x) + threadIdx.x;
  };
  auto fetch = [&](Packed<T, V>* stage, int i, int w, int64_t row) {
    cp_async<16>(cvta_to_shared(stage + (i * W + w) * blockDim.x), typed<T>(a.x) + row * r.columns + place(w),
                 row < r.rows && has(w));
  };
  for (uint32_t s = 0; s < r.stages; ++s) {
#pragma unroll
    for (int w = 0; w < W; ++w)
#pragma unroll
      for (int i = 0; i < R; ++i) fetch(slot_of(s), i, w, start + s * step + i);
    cp_async_commit_group();
  }
  float scale[W][V]{}, bias[W][V]{}, of_warp = 0, of_first = 0;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    of_warp += float(V * __popc(__ballot_sync(0xffffffff, has(w))));
    if (w == 0) of_first = of_warp;
    if (has(w)) read_parameters<V>(scale[w], a.scale, place(w), 1), read_parameters<V>(bias[w], a.bias, place(w), 0);
  }
  const float per_warp = of_warp > 0 ? 1.f / of_warp : 0.f, per_first = of_first > 0 ? 1.f / of_first : 0.f;
  if (several_blocks(r)) meet_blocks(shared);
  uint32_t oldest = 0;
  int turn = 0;
#pragma unroll 1
  for (int64_t row = start; row < r.rows; row += step, ++turn) {
    Packed<T, V>* const stage = slot_of(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    wait_stage(r.stages);
    float4 sums[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float mean = 0, away = 0, squares = 0;
      if (r.centered) {
        float sum = 0;
        const Packed<T, V> x = stage[i * W * blockDim.x];
#pragma unroll
        for (int k = 0; k < V; ++k) sum += x[k];
        mean = warp_sum(sum) * per_first;
      }
#pragma unroll
      for (int w = 0; w < W; ++w)
        if (has(w)) {
          const Packed<T, V> x = stage[(i * W + w) * blockDim.x];
#pragma unroll
          for (int k = 0; k < V; ++k) {
            const float deviation = x[k] - mean;
            away += deviation, squares += deviation * deviation;
          }
        }
      squares = warp_sum(squares);
      if (r.centered) {
        away = warp_sum(away);
        const float rest = away * per_warp;
        sums[i] = {of_warp, mean, rest, squares - away * rest};
      } else sums[i] = {squares, 0, 0, 0};
    }
    if (r.centered) join_rows<JoinMoments>(r, shared, turn, sums);
    else join_rows<JoinSums>(r, shared, turn, sums);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float mean = r.centered ? sums[i].y : 0.f, rest = r.centered ? sums[i].z : 0.f;
      const float squares = r.centered ? sums[i].w : sums[i].x;
      const float inv_std = norm::inverse_std(max_or_nan(squares * r.per_column, 0.f), a.eps), shift = rest * inv_std;
      const bool exists = row + i < r.rows;
      if (exists && part.first == 0) {
        if (r.centered) static_cast<float*>(a.mean)[row + i] = mean + rest;
        static_cast<float*>(a.inv_std)[row + i] = inv_std;
      }
      T* const out = static_cast<T*>(a.out) + (row + i) * r.columns;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const Packed<T, V> x = stage[(i * W + w) * blockDim.x];
        float y[V];
#pragma unroll
        for (int k = 0; k < V; ++k) y[k] = ((x[k] - mean) * inv_std - shift) * scale[w][k] + bias[w][k];
        if (exists && has(w)) Packed<T, V>::store(out + place(w), y);
        fetch(stage, i, w, row + i + r.stages * step);
      }
    }
    cp_async_commit_group();
  }
  cp_async_wait_group<0>();
}

// A ring of r.stages rows of x and dy in shared memory, which are complete or in flight. A thread reads back only what
// it has copied itself, so the copies need no barrier. Vectors that do not exist are zeros.
template <class T, int V, int W> struct HeldRows {
  Packed<T, V>* slots;  // [stages][W][x, dy][threads]

  __device__ __forceinline__ Packed<T, V>* stage(uint32_t i) const {
    return slots + i * (2 * W * blockDim.x) + threadIdx.x;
  }
  static __device__ __forceinline__ Packed<T, V>& x(Packed<T, V>* stage, int w) { return stage[2 * w * blockDim.x]; }
  static __device__ __forceinline__ Packed<T, V>& dy(Packed<T, V>* stage, int w) {
    return stage[(2 * w + 1) * blockDim.x];
  }
  // at: the first element of the vector, which is read if `exists`.
  static __device__ __forceinline__ void fetch(const RowNormArgs& a, Packed<T, V>* stage, int w, int64_t at,
                                               bool exists) {
    Packed<T, V>&x_to = x(stage, w), &dy_to = dy(stage, w);
    if constexpr (V > 1) {
      cp_async<16>(cvta_to_shared(&x_to), typed<T>(a.x) + at, exists);
      cp_async<16>(cvta_to_shared(&dy_to), typed<T>(a.dy) + at, exists);
    } else if (exists) x_to.load(typed<T>(a.x) + at), dy_to.load(typed<T>(a.dy) + at);
    else x_to.raw = T(0.f), dy_to.raw = T(0.f);
  }
};

// The statistics of a row, loaded one iteration ahead.
struct RowStatistics {
  float mean = 0, inv_std = 0;
  __device__ __forceinline__ void load(const NormRows& r, const RowNormArgs& a, int64_t row) {
    const bool exists = row < r.rows;
    mean = exists && r.centered ? __ldg(typed<float>(a.mean) + row) : 0.f;
    inv_std = exists ? __ldg(typed<float>(a.inv_std) + row) : 0.f;
  }
};

// Whether scale is kept in registers; if these do not suffice, it is in shared memory, behind the rows.
template <int V, int W> constexpr bool kKeepsScale = V * W <= kNormRowsKept;

// dx, and partial sums of dscale and dbias. Persistent clusters of r.blocks blocks, each with r.rows_at_once rows per
// iteration. partials: pairs of dscale and dbias, [clusters][columns].
template <class T, int V, int W>
__global__ void __launch_bounds__(kNormRowsThreads, (kBlocksOfSm<V, W>))
    norm_rows_backward(const __grid_constant__ NormRows r, RowNormArgs a, float2* partials) {
  using Held = HeldRows<T, V, W>;
  extern __shared__ uint4 dynamic[];
  __shared__ RowSums<1> shared;
  const Held held{reinterpret_cast<Packed<T, V>*>(dynamic)};
  const RowPart part(r);
  const int64_t step = int64_t(gridDim.x / r.blocks) * r.rows_at_once;
  const int64_t start = int64_t(blockIdx.x / r.blocks) * r.rows_at_once;
  auto has = [&](int w) { return part.first + w * part.step < r.vectors; };
  auto place = [&](int w) { return int64_t(part.first + w * part.step) * V; };

  // The copies of a stage are one commit group. If there is only one stage, those of each vector are a group, and the
  // computation begins when the first vector has arrived.
  constexpr bool kOneStage = V > 1 && W == 8;
  auto commit = [](int w) {
    if (kOneStage || w == W - 1) cp_async_commit_group();
  };
  for (uint32_t i = 0; i < r.stages; ++i) {
    const int64_t row = start + part.team + i * step;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      Held::fetch(a, held.stage(i), w, row * r.columns + place(w), row < r.rows && has(w));
      commit(w);
    }
  }
  RowStatistics next;
  next.load(r, a, start + part.team);
  float kept[W][V];
  float4* const behind = reinterpret_cast<float4*>(held.slots + r.stages * 2 * W * blockDim.x) + threadIdx.x;
#pragma unroll
  for (int w = 0; w < W; ++w) {
    if (has(w)) read_parameters<V>(kept[w], a.scale, place(w), 1);
    else {
#pragma unroll
      for (int k = 0; k < V; ++k) kept[w][k] = 0;
    }
    if constexpr (!kKeepsScale<V, W>) {
#pragma unroll
      for (int k = 0; k < V; k += 4)
        behind[(w * V + k) / 4 * blockDim.x] = {kept[w][k], kept[w][k + 1], kept[w][k + 2], kept[w][k + 3]};
    }
  }
  auto scale_of = [&](int w, float(&scale)[V]) {
    if constexpr (kKeepsScale<V, W>) {
#pragma unroll
      for (int k = 0; k < V; ++k) scale[k] = kept[w][k];
    } else {
#pragma unroll
      for (int k = 0; k < V; k += 4) {
        const float4 four = behind[(w * V + k) / 4 * blockDim.x];
        scale[k] = four.x, scale[k + 1] = four.y, scale[k + 2] = four.z, scale[k + 3] = four.w;
      }
    }
  };

  float dscale[W][V]{}, dbias[W][V]{};
  uint32_t oldest = 0;
  int turn = 0;
  if (several_blocks(r)) meet_blocks(shared);
#pragma unroll 1
  for (int64_t begin = start; begin < r.rows; begin += step, ++turn) {
    const int64_t row = begin + part.team;
    Packed<T, V>* const stage = held.stage(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    const auto [mean, inv_std] = next;
    next.load(r, a, row + step);
    if constexpr (!kOneStage) wait_stage(r.stages);
    // inv_std is applied where it costs least: until the sums are joined, `second` is of dy scale (x - mean).
    float first = 0, second = 0;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if constexpr (kOneStage) wait_group<W>(w);
      const Packed<T, V> x = Held::x(stage, w), dy = Held::dy(stage, w);
      float scale[V];
      scale_of(w, scale);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float one = dy[k], product = one * (x[k] - mean);
        first += one * scale[k], second += product * scale[k];
        dbias[w][k] += one, dscale[w][k] += product * inv_std;
      }
    }
    const float4 sums = join_row<JoinSums>(r, shared, turn, {warp_sum(first), warp_sum(second), 0, 0});
    first = r.centered ? sums.x * r.per_column : 0.f;
    second = sums.y * inv_std * r.per_column * inv_std;
    const int64_t ahead = row + r.stages * step;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const Packed<T, V> x = Held::x(stage, w), dy = Held::dy(stage, w);
      float scale[V], dx[V];
      scale_of(w, scale);
#pragma unroll
      for (int k = 0; k < V; ++k) dx[k] = inv_std * (dy[k] * scale[k] - ((x[k] - mean) * second + first));
      if (has(w) && row < r.rows) Packed<T, V>::store(static_cast<T*>(a.out) + row * r.columns + place(w), dx);
      Held::fetch(a, stage, w, ahead * r.columns + place(w), ahead < r.rows && has(w));
      commit(w);
    }
  }
  griddep_launch_dependents();
  cp_async_wait_group<0>();

  // Joins the sums of the rows that the block processed together, by halves: lower half + upper half.
  float2* const other = reinterpret_cast<float2*>(dynamic);
#pragma unroll 1
  for (uint32_t teams = r.rows_at_once; teams > 1;) {
    const uint32_t half = (teams + 1) / 2, threads = half * r.threads;
    __syncthreads();
    if (part.team >= half && part.team < teams) {
#pragma unroll
      for (int i = 0; i < W * V; ++i)
        other[i * threads + threadIdx.x - threads] = {dscale[i / V][i % V], dbias[i / V][i % V]};
    }
    __syncthreads();
    if (part.team < teams - half) {
#pragma unroll
      for (int i = 0; i < W * V; ++i) {
        const float2 more = other[i * threads + threadIdx.x];
        dscale[i / V][i % V] += more.x, dbias[i / V][i % V] += more.y;
      }
    }
    teams = half;
  }
  if (part.team == 0) {
    float2* to = partials + int64_t(blockIdx.x / r.blocks) * r.columns;
#pragma unroll
    for (int w = 0; w < W; ++w)
      if (has(w)) {
        if constexpr (V == 1) to[place(w)] = {dscale[w][0], dbias[w][0]};
        else {
#pragma unroll
          for (int k = 0; k < V; k += 2)
            *reinterpret_cast<float4*>(to + place(w) + k) = {dscale[w][k], dbias[w][k], dscale[w][k + 1],
                                                             dbias[w][k + 1]};
        }
      }
  }
}

// dscale and dbias from `count` partial results. A block has 32 columns; each of its 16 warps adds up every 16th
// partial result, then the warps join by halves, in float64. It is a template only because a plain kernel would be part
// of the cubin of every kernel of this file.
template <int unused>
__global__ void __launch_bounds__(kNormFinishThreads)
    norm_rows_finish(int64_t columns, int64_t count, const float2* partials, float* dscale, float* dbias) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = int64_t(blockIdx.x) * kNormFinishChannels + lane;
  Gradients<double> total{};
  griddep_wait();
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

// The same for few partial results: a thread has a column.
template <int unused>
__global__ void __launch_bounds__(kNormFewThreads)
    norm_rows_finish_few(int64_t columns, int64_t count, const float2* partials, float* dscale, float* dbias) {
  const int64_t column = int64_t(blockIdx.x) * kNormFewThreads + threadIdx.x;
  if (column >= columns) return;
  Gradients<double> total{};
  griddep_wait();
#pragma unroll 8
  for (int64_t i = 0; i < count; ++i) {
    const float2 some = partials[i * columns + column];
    total.join({double(some.y), double(some.x)});
  }
  dscale[column] = float(total.product);
  if (dbias) dbias[column] = float(total.dy);
}

}  // namespace minidnn
