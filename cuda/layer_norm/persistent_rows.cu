// SPDX-License-Identifier: Apache-2.0
// Forward layer, RMS and group norm of contiguous rows that stay in registers or shared memory. The gradients are in
// persistent_rows_backward.cu.
// - Work division: a thread has kVectors vectors of a row. The threads of a row are 8 or 16 lanes of a warp, one or
//   more warps, a block, or a cluster of blocks (sm_90).
// - Short rows are in registers.
// - Long rows are in shared memory, and blocks are persistent. Each block copies its next rows while it processes the
//   current ones.
// - Bytes: x is read once, and the result is written once.
// - Numerics: each warp first computes a provisional mean of at least an eighth of its values, and then the moments of
//   all deviations from it. The provisional mean is at most 2.7 standard deviations off, so |mean| >> std costs no
//   precision.
#include "cuda/layer_norm/row_sums.cuh"

namespace minidnn {

// The forward norm of short rows, which are in registers. The grid has one block per r.rows_at_once rows, or one
// cluster of r.blocks blocks per row.
template <class T, int kVec, int kVectors>
__global__ void __launch_bounds__(1024) layer_norm_rows_forward(const __grid_constant__ RowTiling r, LayerNormArgs a) {
  __shared__ RowSums<1> shared;
  const RowSlice slice(r);
  const int64_t row = int64_t(blockIdx.x / r.blocks) * r.rows_at_once + slice.row_in_block;
  const bool exists = row < r.rows;
  const T* x = typed<T>(a.x) + row * r.columns;
  Vec<T, kVec> v[kVectors];
  bool has[kVectors];
#pragma unroll
  for (int w = 0; w < kVectors; ++w) {
    has[w] = exists && slice.first + w * slice.step < r.vectors;
    if (has[w]) v[w] = Vec<T, kVec>::load(x + int64_t(slice.first + w * slice.step) * kVec);
  }
  if (several_blocks(r)) init_cluster(shared);
  const float n = float(r.columns);
  // The moments of the values of a warp or, if rows share a warp, of a row. The mean is mean + rest, and `per_element`
  // is 1 / count.
  float mean = 0, rest = 0, count = 0, per_element = 0;
  if (r.centered) {
    float sum = 0, firsts = 0;
#pragma unroll
    for (int w = 0; w < kVectors; ++w) {
      count += float(kVec * __popc(__ballot_sync(0xffffffff, has[w])));
      if (w == 0) firsts = count;
    }
    if (r.threads < 32) {
      count = n;
      firsts = float(kVec * min_of(r.vectors, r.threads));
    }
    if (has[0]) {
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum += v[0][k];
    }
    per_element = count > 0 ? 1.f / count : 0.f;
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
    rest = away * per_element;
    const float4 all = join_row<JoinMoments>(r, shared, 0, {count, mean, rest, squares - away * rest});
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
      Vec<T, kVec>::pack(y).store(out + int64_t(vector) * kVec);
    }
}

// The forward norm of long rows, which are in shared memory. A persistent cluster of r.blocks blocks normalises kRows
// rows per iteration, while the rows of the next iterations are copied. A thread reads only elements that it has copied
// itself, so the copies need no barrier. Shared memory is [r.stages][kRows][kVectors][threads] vectors, where a stage
// is the buffer of one iteration.
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
    return reinterpret_cast<Vec<T, kVec>*>(dynamic) + stage * (kRows * kVectors * blockDim.x) + threadIdx.x;
  };
  auto fetch = [&](Vec<T, kVec>* stage, int i, int w, int64_t row) {
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
    if (has(w)) {
      read_parameters<kVec>(scale[w], a.scale, column(w), 1);
      read_parameters<kVec>(bias[w], a.bias, column(w), 0);
    }
  }
  const float per_warp = of_warp > 0 ? 1.f / of_warp : 0.f, per_first = of_first > 0 ? 1.f / of_first : 0.f;
  if (several_blocks(r)) init_cluster(shared);
  uint32_t oldest = 0;
  int iteration = 0;
#pragma unroll 1
  for (int64_t row = start; row < r.rows; row += step, ++iteration) {
    Vec<T, kVec>* const stage = slot_of(oldest);
    oldest = oldest + 1 == r.stages ? 0 : oldest + 1;
    wait_stage(r.stages);
    float4 sums[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float mean = 0, away = 0, squares = 0;
      if (r.centered) {
        float sum = 0;
        const Vec<T, kVec> x = stage[i * kVectors * blockDim.x];
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum += x[k];
        mean = warp_sum(sum) * per_first;
      }
#pragma unroll
      for (int w = 0; w < kVectors; ++w)
        if (has(w)) {
          const Vec<T, kVec> x = stage[(i * kVectors + w) * blockDim.x];
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
        const Vec<T, kVec> x = stage[(i * kVectors + w) * blockDim.x];
        float y[kVec];
#pragma unroll
        for (int k = 0; k < kVec; ++k) y[k] = ((x[k] - mean) * inv_std - shift) * scale[w][k] + bias[w][k];
        if (exists && has(w)) Vec<T, kVec>::pack(y).store(out + column(w));
        fetch(stage, i, w, row + i + r.stages * step);
      }
    }
    cp_async_commit_group();
  }
  cp_async_wait_group<0>();
}

}  // namespace minidnn
