// SPDX-License-Identifier: Apache-2.0
// A transpose: x is contiguous along one dimension and y along another. A block of 32 x 8 threads turns a tile of them
// in shared memory, so that both sides are walked along their contiguous dimension. T is an integer of the elements'
// size. Pairs of 16-bit elements, where they are words on both sides, are walked as words, two by two of them turned in
// registers. Reads and writes everything once.
#include "cuda/transform/tiled.h"

namespace minidnn {

// Columns 2 i stand in row i of `words`, columns 2 i + 1 in row 32 + i, so that no bank is met twice.
__device__ __forceinline__ void turn_pairs(const TiledCopy& c, const uint16_t* x, uint16_t* y, int lines, int columns,
                                           uint32_t (&words)[64][33]) {
  const int i = threadIdx.x;
#pragma unroll
  for (int pair = threadIdx.y; pair < 32; pair += 8)
    if (2 * pair < lines && 2 * i < columns) {
      const uint16_t* from = x + 2 * pair * c.x_line + 2 * i;
      const uint32_t first = *reinterpret_cast<const uint32_t*>(from),
                     second = *reinterpret_cast<const uint32_t*>(from + c.x_line);
      words[i][pair] = __byte_perm(first, second, 0x5410), words[32 + i][pair] = __byte_perm(first, second, 0x7632);
    }
  __syncthreads();
#pragma unroll
  for (int column = threadIdx.y; column < 64; column += 8)
    if (column < columns && 2 * i < lines)
      *reinterpret_cast<uint32_t*>(y + column * c.y_column + 2 * i) = words[column / 2 + column % 2 * 32][i];
}

template <class T, int kTile>
__global__ void __launch_bounds__(256) transform_tiled(const __grid_constant__ TiledCopy c, const T* x, T* y) {
  constexpr int kPad = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // a column's elements lie in different banks
  __shared__ alignas(8) T tile[kTile][kTile + kPad];
  const uint32_t i = c.inner.quotient(blockIdx.z), j = blockIdx.z - i * c.inner.divisor;
  const int64_t column = int64_t(blockIdx.x) * kTile, line = int64_t(blockIdx.y) * kTile;
  x += i * c.x_outer[0] + j * c.x_outer[1] + line * c.x_line + column;
  y += i * c.y_outer[0] + j * c.y_outer[1] + column * c.y_column + line;
  const int lines = int(min_of(c.lines - line, int64_t(kTile))),
            columns = int(min_of(c.columns - column, int64_t(kTile)));
  if constexpr (sizeof(T) == 2)
    if (c.pairs && (uint64_t(x) | uint64_t(y)) % 4 == 0)
      return turn_pairs(c, x, y, lines, columns, reinterpret_cast<uint32_t(&)[64][33]>(tile));
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
