// SPDX-License-Identifier: Apache-2.0
// Gradients of layer and RMS norm with long rows, for which registers and shared memory do not suffice.
// - First launch: computes two sums for each row. A block has some columns (a chunk) of kTwoPassRows adjacent rows.
// - Second launch: computes dx, and partial sums of dscale and dbias. A block has some columns (a tile) of up to 128
//   adjacent rows (a section). It reads scale only once.
// - Third launch (parameter_sums.cu): joins the partial sums of all sections.
// - Bytes: x and dy are read twice, and dx is written once, at the bandwidth of a copy. The second launch processes
//   tiles and sections in reverse order, because the last ones are still in the L2 cache.
#include "cpp/layer_norm/layer_norm_math.h"
#include "cuda/device/vec.cuh"
#include "cuda/layer_norm/two_pass_params.h"
#include "cuda/norm/moments.cuh"
#include "cuda/norm/parameters.cuh"

namespace minidnn {

constexpr int kTwoPassWarps = kTwoPassThreads / 32;

// One vector of x and one vector of dy from each of kTwoPassRows adjacent rows, in the same columns. `row` is the first
// of these rows.
template <class T, int kVec> struct RowBatch {
  Vec<T, kVec> x[kTwoPassRows], dy[kTwoPassRows];
  __device__ __forceinline__ void load(const TwoPassTiling& r, const LayerNormArgs& a, int64_t row, uint32_t vector) {
    const int64_t at = row * r.columns + int64_t(vector) * kVec;
#pragma unroll
    for (int u = 0; u < kTwoPassRows; ++u)
      if (row + u < r.rows) {
        x[u] = Vec<T, kVec>::load(typed<T>(a.x) + at + u * r.columns);
        dy[u] = Vec<T, kVec>::load(typed<T>(a.dy) + at + u * r.columns);
      }
  }
};

// The first launch. For each chunk (some columns) of each row, it computes sum(g) and sum(g x_hat), where g = dy scale
// and x_hat = (x - mean) inv_std. `sums` receives these pairs, [rows][chunks].
template <class T, int kVec>
__global__ void __launch_bounds__(kTwoPassThreads)
    layer_norm_two_pass_sums(const __grid_constant__ TwoPassTiling r, LayerNormArgs a, float2* sums) {
  const uint32_t batch = blockIdx.x / r.chunks, chunk = blockIdx.x - batch * r.chunks;
  const int64_t row = int64_t(batch) * kTwoPassRows;
  float mean[kTwoPassRows]{};
  Gradients<float> total[kTwoPassRows]{};  // total.product is the sum of g (x - mean), where g = dy scale.
#pragma unroll
  for (int u = 0; u < kTwoPassRows; ++u)
    if (row + u < r.rows && r.centered) mean[u] = typed<float>(a.mean)[row + u];
  const uint32_t end = min_of((chunk + 1) * r.chunk, r.vectors);
  for (uint32_t i = chunk * r.chunk + threadIdx.x; i < end; i += kTwoPassThreads) {
    RowBatch<T, kVec> v;
    v.load(r, a, row, i);
    float scale[kVec];
    read_parameters<kVec>(scale, a.scale, int64_t(i) * kVec, 1);
#pragma unroll
    for (int u = 0; u < kTwoPassRows; ++u)
      if (row + u < r.rows) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          const float g = v.dy[u][k] * scale[k];
          total[u].dy += g;
          total[u].product += g * (v.x[u][k] - mean[u]);
        }
      }
  }
  __shared__ Gradients<float> of_warp[kTwoPassWarps][kTwoPassRows];
#pragma unroll
  for (int u = 0; u < kTwoPassRows; ++u) {
    total[u].join_warp();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][u] = total[u];
  }
  __syncthreads();
  if (threadIdx.x >= kTwoPassRows || row + threadIdx.x >= r.rows) return;
  Gradients<float> all = of_warp[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kTwoPassWarps; ++w) all.join(of_warp[w][threadIdx.x]);
  const int64_t mine = row + threadIdx.x;
  sums[mine * r.chunks + chunk] = {all.dy, all.product * typed<float>(a.inv_std)[mine]};
}

// The second launch computes dx, and sums of dscale and dbias over sections of adjacent rows. `partials` receives pairs
// of dscale and dbias, [sections][columns].
template <class T, int kVec>
__global__ void __launch_bounds__(kTwoPassThreads)
    layer_norm_two_pass_map(const __grid_constant__ TwoPassTiling r, LayerNormArgs a, const float2* sums,
                            float2* partials) {
  // The coefficients of a row: dx = inv_std (g - offset - x_hat slope), where g = dy scale and x_hat = (x - mean)
  // inv_std. `offset` is the mean of g, and `slope` is the mean of g x_hat.
  struct alignas(16) Line {
    float mean, inv_std, offset, slope;
  };
  __shared__ Line lines[kMaxSectionRows];
  const uint32_t block = gridDim.x - 1 - blockIdx.x, section = block / r.tiles, tile = block - section * r.tiles;
  const int64_t begin = int64_t(section) * r.section, end = min_of(begin + int64_t(r.section), r.rows);
  const float per_member = 1.f / float(r.columns);
  // A warp adds up the sums of four rows at the same time, with eight lanes for each row.
  constexpr int kRows = 4;
  for (int64_t at = begin; at < end; at += kTwoPassWarps * kRows) {
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
  const uint32_t vector = tile * kTwoPassThreads + threadIdx.x;
  if (vector >= r.vectors) return;
  float scale[kVec], dscale[kVec]{}, dbias[kVec]{};
  read_parameters<kVec>(scale, a.scale, int64_t(vector) * kVec, 1);
  for (int64_t row = begin; row < end; row += kTwoPassRows) {
    RowBatch<T, kVec> v;
    v.load(r, a, row, vector);
#pragma unroll
    for (int u = 0; u < kTwoPassRows; ++u)
      if (row + u < r.rows) {
        const Line line = lines[row - begin + u];
        float dx[kVec];
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          const float one = v.dy[u][k], x_hat = (v.x[u][k] - line.mean) * line.inv_std;
          dbias[k] += one;
          dscale[k] += one * x_hat;
          dx[k] = line.inv_std * (one * scale[k] - line.offset - x_hat * line.slope);
        }
        Vec<T, kVec>::pack(dx).store(static_cast<T*>(a.out) + (row + u) * r.columns + int64_t(vector) * kVec);
      }
  }
  float2* to = partials + section * r.columns + int64_t(vector) * kVec;
#pragma unroll
  for (int k = 0; k < kVec; ++k) to[k] = {dscale[k], dbias[k]};
}

}  // namespace minidnn
