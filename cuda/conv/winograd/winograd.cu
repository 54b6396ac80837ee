// SPDX-License-Identifier: Apache-2.0
// The transforms before and after the 36 matrix products of cuda.conv.winograd (winograd_math.h).
// Grid: one thread for each channel of a tile, or for each window. Block: 256 threads. A thread has its patch, tile or
// window in registers. Shared memory: none. Neighbouring threads access neighbouring elements of the buffers, so warps
// read and write whole cache lines.
// The kernels are bound by memory. Each element of x is read from memory about once, because overlapping patches hit in
// L1.
#include "cpp/activation/activation_math.h"
#include "cuda/conv/winograd/winograd_math.h"

namespace minidnn {

// Computes the matrix product out = M * in * M^T.
template <class M>
__device__ __forceinline__ void transform(const float (&in)[M::kIn][M::kIn], float (&out)[M::kOut][M::kOut]) {
  float half[M::kOut][M::kIn];
#pragma unroll
  for (int i = 0; i < M::kOut; ++i)
#pragma unroll
    for (int j = 0; j < M::kIn; ++j) {
      float sum = 0;
#pragma unroll
      for (int l = 0; l < M::kIn; ++l)
        if (M::at(i, l) != 0) sum += M::at(i, l) * in[l][j];
      half[i][j] = sum;
    }
#pragma unroll
  for (int i = 0; i < M::kOut; ++i)
#pragma unroll
    for (int j = 0; j < M::kOut; ++j) {
      float sum = 0;
#pragma unroll
      for (int l = 0; l < M::kIn; ++l)
        if (M::at(j, l) != 0) sum += M::at(j, l) * half[i][l];
      out[i][j] = sum;
    }
}

__device__ __forceinline__ uint32_t thread_index() { return blockIdx.x * 256 + threadIdx.x; }

// Transforms patches of x or dy (M = WinogradPatch) or, for dw, tiles of dy (M = WinogradGradient). The patch of a tile
// starts before_row rows and before_column columns before it.
template <class M>
__global__ void __launch_bounds__(256)
    winograd_input(const __grid_constant__ WinogradTensor t, const __grid_constant__ WinogradGrid g, int before_row,
                   int before_column, const float* x, float* buffer) {
  const uint32_t i = thread_index();
  if (i >= g.size()) return;
  const WinogradTilePosition p = position_of(g, i);
  const int32_t row = p.row - before_row, column = p.column - before_column;
  const float* from = x + p.image * t.image + p.channel * t.channel + row * t.row + column * t.column;
  float in[M::kIn][M::kIn], out[M::kOut][M::kOut];
#pragma unroll
  for (int a = 0; a < M::kIn; ++a) {
    const bool exists = p.tile < g.tiles && uint32_t(row + a) < uint32_t(t.height);
#pragma unroll
    for (int b = 0; b < M::kIn; ++b)
      in[a][b] = exists && uint32_t(column + b) < uint32_t(t.width) ? from[a * t.row + b * t.column] : 0;
  }
  transform<M>(in, out);
  float* to = buffer + p.channel * g.channel + p.tile * g.tile;
#pragma unroll
  for (int a = 0; a < kWinogradPoints; ++a) to[a * g.plane] = out[a / 6][a % 6];
}

__global__ void __launch_bounds__(256)
    winograd_filter(const __grid_constant__ WinogradFilter f, const float* w, float* buffer) {
  uint32_t sum = thread_index();
  const uint32_t result = uint32_t(f.results.divmod(sum));
  if (sum >= f.sums) return;
  const float* from = w + f.origin + sum * f.sum + result * f.result;
  float in[3][3], out[6][6];
#pragma unroll
  for (int a = 0; a < 9; ++a) in[a / 3][a % 3] = from[a / 3 * f.row + a % 3 * f.column];
  transform<WinogradWindow>(in, out);
  float* to = buffer + sum * f.pitch + result;
#pragma unroll
  for (int a = 0; a < kWinogradPoints; ++a) to[a * f.plane] = out[a / 6][a % 6];
}

// Transforms the results of the 36 matrix products to y or dx.
template <Activation kActivation>
__global__ void __launch_bounds__(256) winograd_output(const __grid_constant__ WinogradOutput o, const float* buffer,
                                                       const float* bias, const float* residual, float* y) {
  const WinogradTensor &t = o.y, &r = o.residual;
  const WinogradGrid& g = o.grid;
  const uint32_t i = thread_index();
  if (i >= g.size()) return;
  const WinogradTilePosition p = position_of(g, i);
  if (p.tile >= g.tiles) return;
  const float* from = buffer + p.channel * g.channel + p.tile * g.tile;
  float in[6][6], out[4][4];
#pragma unroll
  for (int a = 0; a < kWinogradPoints; ++a) in[a / 6][a % 6] = from[a * g.plane];
  transform<WinogradResult>(in, out);
  const float add = bias ? bias[p.channel * o.bias_stride] : 0;
  float* to = y + p.image * t.image + p.channel * t.channel + p.row * t.row + p.column * t.column;
  const float* from_residual =
      residual + p.image * r.image + p.channel * r.channel + p.row * r.row + p.column * r.column;
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    if (p.row + a >= t.height) break;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if (p.column + b >= t.width) break;
      float v = out[a][b] + add;
      if (residual) v += from_residual[a * r.row + b * r.column];
      out[a][b] = activate<kActivation>(v, o.alpha);
    }
    float* at = to + a * t.row;
    if (o.vectors) {
      *reinterpret_cast<float4*>(at) = make_float4(out[a][0], out[a][1], out[a][2], out[a][3]);
    } else {
#pragma unroll
      for (int b = 0; b < 4; ++b)
        if (p.column + b < t.width) at[b * t.column] = out[a][b];
    }
  }
}

// Transforms the results of the 36 matrix products, [36][sum][result], to dw.
__global__ void __launch_bounds__(256)
    winograd_weights(const __grid_constant__ WinogradFilter f, const float* buffer, float* w) {
  uint32_t sum = thread_index();
  const uint32_t result = uint32_t(f.results.divmod(sum));
  if (sum >= f.sums) return;
  const float* from = buffer + sum * f.pitch + result;
  float in[6][6], out[3][3];
#pragma unroll
  for (int a = 0; a < kWinogradPoints; ++a) in[a / 6][a % 6] = from[a * f.plane];
  transform<WinogradTaps>(in, out);
  float* to = w + f.origin + sum * f.sum + result * f.result;
#pragma unroll
  for (int a = 0; a < 9; ++a) to[a / 3 * f.row + a % 3 * f.column] = out[a / 3][a % 3];
}

}  // namespace minidnn
