// SPDX-License-Identifier: Apache-2.0
// A transpose: x is contiguous along one dimension and y along another. A block of 32 x 8 threads turns a tile of them in
// shared memory, so that both sides are walked along their contiguous dimension. T is an integer of the elements' size.
// Reads and writes everything once.
#include "cuda/transform/tiled.h"

namespace minidnn {

template <class T, int kTile>
__global__ void __launch_bounds__(256) transform_tiled(const __grid_constant__ TiledCopy c, const T* x, T* y) {
  constexpr int kPad = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // a column's elements lie in different banks
  __shared__ T tile[kTile][kTile + kPad];
  const uint32_t i = c.inner.quotient(blockIdx.z), j = blockIdx.z - i * c.inner.divisor;
  const int64_t column = int64_t(blockIdx.x) * kTile, line = int64_t(blockIdx.y) * kTile;
  x += i * c.x_outer[0] + j * c.x_outer[1] + line * c.x_line + column;
  y += i * c.y_outer[0] + j * c.y_outer[1] + column * c.y_column + line;
  const int lines = int(min_of(c.lines - line, int64_t(kTile))),
            columns = int(min_of(c.columns - column, int64_t(kTile)));
#pragma unroll
  for (int l = threadIdx.y; l < kTile; l += 8)
#pragma unroll
    for (int k = threadIdx.x; k < kTile; k += 32)
      if (l < lines && k < columns) tile[l][k] = x[l * c.x_line + k];
  __syncthreads();
#pragma unroll
  for (int k = threadIdx.y; k < kTile; k += 8)
#pragma unroll
    for (int l = threadIdx.x; l < kTile; l += 32)
      if (l < lines && k < columns) y[k * c.y_column + l] = tile[l][k];
}

}  // namespace minidnn
