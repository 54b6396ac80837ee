// SPDX-License-Identifier: Apache-2.0
// Gradients of layer and RMS norm along rows that are too long to be kept on chip together with the sums of their
// columns.
// - Three launches: the two sums of each row, by chunks of the row; dx, and the sums of columns over sections of rows;
//   the join of these (norm_rows_finish).
// - Grid: one block per chunk of kLongBatch rows; then one per tile of columns and section. A block processes several
//   rows at the same time, so scale is read once for them.
// - Bytes: x and dy are read twice, dx is written once: five tensors instead of the three of one pass, at the rate of
//   copies. The map goes through the blocks in reverse order: it begins with what the L2 still holds.
#include "cpp/norm/row_norm_math.h"
#include "cuda/norm/rows_long.h"
#include "cuda/norm/split.cuh"

namespace minidnn {

constexpr int kLongWarps = kLongThreads / 32;

// One vector of x and dy in each of the kLongBatch rows from `row` on.
template <class T, int V> struct LongBatch {
  Packed<T, V> x[kLongBatch], dy[kLongBatch];
  __device__ __forceinline__ void load(const NormLongRows& r, const RowNormArgs& a, int64_t row, uint32_t vector) {
    const int64_t at = row * r.columns + int64_t(vector) * V;
#pragma unroll
    for (int u = 0; u < kLongBatch; ++u)
      if (row + u < r.rows) {
        x[u].load(typed<T>(a.x) + at + u * r.columns);
        dy[u].load(typed<T>(a.dy) + at + u * r.columns);
      }
  }
};

// The sums of rows. sums: pairs of sum(g) and sum(g x_hat), [rows][chunks], where g = dy scale.
template <class T, int V>
__global__ void __launch_bounds__(kLongThreads)
    norm_long_sums(const __grid_constant__ NormLongRows r, RowNormArgs a, float2* sums) {
  const uint32_t batch = blockIdx.x / r.chunks, chunk = blockIdx.x - batch * r.chunks;
  const int64_t row = int64_t(batch) * kLongBatch;
  float mean[kLongBatch]{};
  Gradients<float> total[kLongBatch]{};  // product: g (x - mean)
#pragma unroll
  for (int u = 0; u < kLongBatch; ++u)
    if (row + u < r.rows && r.centered) mean[u] = typed<float>(a.mean)[row + u];
  const uint32_t end = min_of((chunk + 1) * r.chunk, r.vectors);
  for (uint32_t i = chunk * r.chunk + threadIdx.x; i < end; i += kLongThreads) {
    LongBatch<T, V> v;
    v.load(r, a, row, i);
    float scale[V];
    read_parameters<V>(scale, a.scale, int64_t(i) * V, 1);
#pragma unroll
    for (int u = 0; u < kLongBatch; ++u)
      if (row + u < r.rows) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const float g = v.dy[u][k] * scale[k];
          total[u].dy += g, total[u].product += g * (v.x[u][k] - mean[u]);
        }
      }
  }
  __shared__ Gradients<float> of_warp[kLongWarps][kLongBatch];
#pragma unroll
  for (int u = 0; u < kLongBatch; ++u) {
    total[u].join_warp();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][u] = total[u];
  }
  __syncthreads();
  if (threadIdx.x >= kLongBatch || row + threadIdx.x >= r.rows) return;
  Gradients<float> all = of_warp[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kLongWarps; ++w) all.join(of_warp[w][threadIdx.x]);
  const int64_t mine = row + threadIdx.x;
  sums[mine * r.chunks + chunk] = {all.dy, all.product * typed<float>(a.inv_std)[mine]};
}

// dx, and the sums of columns. partials: pairs of dscale and dbias, [sections][columns].
template <class T, int V>
__global__ void __launch_bounds__(kLongThreads)
    norm_long_map(const __grid_constant__ NormLongRows r, RowNormArgs a, const float2* sums, float2* partials) {
  // The coefficients of a row: dx = inv_std (g - offset - x_hat slope); offset: the mean of g; slope: that of g x_hat.
  struct alignas(16) Line {
    float mean, inv_std, offset, slope;
  };
  __shared__ Line lines[kMostLongSection];
  const uint32_t block = gridDim.x - 1 - blockIdx.x, section = block / r.tiles, tile = block - section * r.tiles;
  const int64_t begin = int64_t(section) * r.section, end = min_of(begin + int64_t(r.section), r.rows);
  const float per_member = 1.f / float(r.columns);
  // A warp joins the chunks of four rows at the same time; a lane adds up every eighth chunk of one row.
  constexpr int kRows = 4;
  for (int64_t at = begin; at < end; at += kLongWarps * kRows) {
    const int64_t row = at + threadIdx.x / 32 * kRows + threadIdx.x % kRows;
    Gradients<float> total{};
    if (row < end)
#pragma unroll 4
      for (uint32_t i = threadIdx.x % 32 / kRows; i < r.chunks; i += 32 / kRows) {
        const float2 some = sums[row * r.chunks + i];
        total.join({some.x, some.y});
      }
    total.join_warp<kRows>();
    if (threadIdx.x % 32 < kRows && row < end) {
      const float inv_std = typed<float>(a.inv_std)[row];
      lines[row - begin] = {r.centered ? typed<float>(a.mean)[row] : 0.f, inv_std,
                            r.centered ? total.dy * per_member : 0.f, total.product * per_member};
    }
  }
  __syncthreads();
  const uint32_t vector = tile * kLongThreads + threadIdx.x;
  if (vector >= r.vectors) return;
  float scale[V], dscale[V]{}, dbias[V]{};
  read_parameters<V>(scale, a.scale, int64_t(vector) * V, 1);
  for (int64_t row = begin; row < end; row += kLongBatch) {
    LongBatch<T, V> v;
    v.load(r, a, row, vector);
#pragma unroll
    for (int u = 0; u < kLongBatch; ++u)
      if (row + u < r.rows) {
        const Line line = lines[row - begin + u];
        float dx[V];
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const float one = v.dy[u][k], x_hat = (v.x[u][k] - line.mean) * line.inv_std;
          dbias[k] += one, dscale[k] += one * x_hat;
          dx[k] = line.inv_std * (one * scale[k] - line.offset - x_hat * line.slope);
        }
        Packed<T, V>::store(static_cast<T*>(a.out) + (row + u) * r.columns + int64_t(vector) * V, dx);
      }
  }
  float2* to = partials + section * r.columns + int64_t(vector) * V;
#pragma unroll
  for (int k = 0; k < V; ++k) to[k] = {dscale[k], dbias[k]};
}

}  // namespace minidnn
