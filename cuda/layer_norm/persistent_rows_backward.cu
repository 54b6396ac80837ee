// SPDX-License-Identifier: Apache-2.0
// Gradients of layer and RMS norm of contiguous rows that stay in shared memory.
// - Work division: a thread has kVectors vectors of a row. The threads of a row are one or more warps, a block, or a
//   cluster of blocks (sm_90). Each block of a cluster sends its sums to all blocks of the cluster.
// - Storage: rows are in shared memory. Blocks are persistent: the grid has as many blocks as run at the same time.
//   Each block copies its next rows while it processes the current ones.
// - Bytes: x and dy are read once, and dx is written once.
// - dscale and dbias: a thread keeps the sums of its columns. A second launch (parameter_sums.cu) joins the sums of all
//   blocks, in a fixed order.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/layer_norm/row_sums.cuh"

namespace minidnn {

// The number of blocks of 512 threads for which the registers of an SM suffice.
template <int kVec, int kVectors> constexpr int kBlocksOfSm = kVec * kVectors <= kTwoBlocksPerSm ? 2 : 1;

// Waits until commit group w of cp.async is complete, where group 0 is the oldest of the kVectors latest groups.
template <int kVectors, int kGroup = 0> __device__ __forceinline__ void wait_group(int w) {
  if (w == kGroup) cp_async_wait_group<kVectors - 1 - kGroup>();
  else if constexpr (kGroup + 1 < kVectors) wait_group<kVectors, kGroup + 1>(w);
}

// A ring buffer of r.stages stages in shared memory. A stage has the rows of x and dy of one iteration. A thread reads
// only vectors that it has copied itself, so the copies need no barrier. Vectors beyond the end of the row or of the
// tensor are zeros.
template <class T, int kVec, int kVectors> struct RowRing {
  // The layout is [stages][kVectors][x, dy][threads].
  Vec<T, kVec>* slots;

  __device__ __forceinline__ Vec<T, kVec>* stage(uint32_t i) const {
    return slots + i * (2 * kVectors * blockDim.x) + threadIdx.x;
  }
  static __device__ __forceinline__ Vec<T, kVec>& x(Vec<T, kVec>* stage, int w) { return stage[2 * w * blockDim.x]; }
  static __device__ __forceinline__ Vec<T, kVec>& dy(Vec<T, kVec>* stage, int w) {
    return stage[(2 * w + 1) * blockDim.x];
  }
  // Copies vector w of x and of dy, which begins at element `at` of the tensor, to a stage of the ring buffer.
  static __device__ __forceinline__ void fetch(const LayerNormArgs& a, Vec<T, kVec>* stage, int w, int64_t at,
                                               bool exists) {
    Vec<T, kVec>&x_to = x(stage, w), &dy_to = dy(stage, w);
    if constexpr (kVec > 1) {
      cp_async<16>(cvta_to_shared(&x_to), typed<T>(a.x) + at, exists);
      cp_async<16>(cvta_to_shared(&dy_to), typed<T>(a.dy) + at, exists);
    } else if (exists) {
      x_to = Vec<T, kVec>::load(typed<T>(a.x) + at);
      dy_to = Vec<T, kVec>::load(typed<T>(a.dy) + at);
    } else {
      x_to = {};
      dy_to = {};
    }
  }
};

// The mean and the inv_std of a row. They are loaded one iteration before they are used.
struct RowStatistics {
  float mean = 0, inv_std = 0;
  __device__ __forceinline__ void load(const RowTiling& r, const LayerNormArgs& a, int64_t row) {
    const bool exists = row < r.rows;
    mean = exists && r.centered ? __ldg(typed<float>(a.mean) + row) : 0.f;
    inv_std = exists ? __ldg(typed<float>(a.inv_std) + row) : 0.f;
  }
};

// Whether a thread keeps scale in registers, instead of in shared memory.
template <int kVec, int kVectors> constexpr bool kKeepsScale = kVec * kVectors <= kScaleInRegisters;

// The values of scale for a thread's columns, in registers or in shared memory.
template <int kVec, int kVectors> struct RowScale {
  float registers[kVectors][kVec];
  // The thread's first float4 of scale in shared memory. The next ones are blockDim.x float4 apart.
  float4* smem;

  __device__ __forceinline__ void load(const RowTiling& r, const RowSlice& slice, const void* from) {
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      float(&scale)[kVec] = registers[w];
      if (slice.has(r, w)) read_parameters<kVec>(scale, from, slice.column<kVec>(w), 1);
      else {
#pragma unroll
        for (int k = 0; k < kVec; ++k) scale[k] = 0;
      }
      if constexpr (!kKeepsScale<kVec, kVectors>) {
#pragma unroll
        for (int k = 0; k < kVec; k += 4)
          smem[(w * kVec + k) / 4 * blockDim.x] = {scale[k], scale[k + 1], scale[k + 2], scale[k + 3]};
      }
    }
  }
  // Gets the values of scale for vector w of the thread.
  __device__ __forceinline__ void get(int w, float (&scale)[kVec]) const {
    if constexpr (kKeepsScale<kVec, kVectors>) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) scale[k] = registers[w][k];
    } else {
#pragma unroll
      for (int k = 0; k < kVec; k += 4) {
        const float4 four = smem[(w * kVec + k) / 4 * blockDim.x];
        scale[k] = four.x;
        scale[k + 1] = four.y;
        scale[k + 2] = four.z;
        scale[k + 3] = four.w;
      }
    }
  }
};

// Adds up dscale and dbias over the rows that a block processes at the same time. Each iteration halves the number of
// rows.
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

// Computes dx, and partial sums of dscale and dbias. Persistent clusters of r.blocks blocks process r.rows_at_once rows
// per iteration. `partials` receives pairs of dscale and dbias, [clusters][columns].
template <class T, int kVec, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads, (kBlocksOfSm<kVec, kVectors>))
    layer_norm_rows_backward(const __grid_constant__ RowTiling r, LayerNormArgs a, float2* partials) {
  using Ring = RowRing<T, kVec, kVectors>;
  extern __shared__ uint4 dynamic[];
  __shared__ RowSums<1> shared;
  const Ring ring{reinterpret_cast<Vec<T, kVec>*>(dynamic)};
  const RowSlice slice(r);
  const int64_t step = int64_t(gridDim.x / r.blocks) * r.rows_at_once;
  const int64_t start = int64_t(blockIdx.x / r.blocks) * r.rows_at_once;
  auto has = [&](int w) { return slice.has(r, w); };
  auto column = [&](int w) { return slice.column<kVec>(w); };

  // With several buffers, the copies of an iteration are one commit group of cp.async. With a single buffer, each
  // vector is a commit group, so that the computation begins when the first vector has arrived.
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
  RowScale<kVec, kVectors> scales;
  scales.smem = reinterpret_cast<float4*>(ring.slots + r.stages * 2 * kVectors * blockDim.x) + threadIdx.x;
  scales.load(r, slice, a.scale);

  float dscale[kVectors][kVec]{}, dbias[kVectors][kVec]{};
  uint32_t oldest = 0;
  int iteration = 0;
  if (several_blocks(r)) init_cluster(shared);
#pragma unroll 1
  for (int64_t begin = start; begin < r.rows; begin += step, ++iteration) {
    const int64_t row = begin + slice.row_in_block;
    Vec<T, kVec>* const stage = ring.stage(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    const auto [mean, inv_std] = next;
    next.load(r, a, row + step);
    if constexpr (!kOneStage) wait_stage(r.stages);
    // In the loop, `second` is the sum of dy scale (x - mean). The factor inv_std is applied once per row, after the
    // loop.
    float first = 0, second = 0;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      if constexpr (kOneStage) wait_group<kVectors>(w);
      const Vec<T, kVec> x = Ring::x(stage, w), dy = Ring::dy(stage, w);
      float scale[kVec];
      scales.get(w, scale);
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
      const Vec<T, kVec> x = Ring::x(stage, w), dy = Ring::dy(stage, w);
      float scale[kVec], dx[kVec];
      scales.get(w, scale);
#pragma unroll
      for (int k = 0; k < kVec; ++k) dx[k] = inv_std * (dy[k] * scale[k] - ((x[k] - mean) * second + first));
      if (has(w) && row < r.rows) Vec<T, kVec>::pack(dx).store(static_cast<T*>(a.out) + row * r.columns + column(w));
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
