// SPDX-License-Identifier: Apache-2.0
// Reduces along an axis that is not the innermost dimension. Neighbouring threads compute neighbouring elements of the
// result.
// - Grid: blocks of columns (fastest), then chunks of the rows, then outer indices.
// - Block: kReduceThreads threads. They form groups of `lanes` threads, and each group reads a row of its own.
// - Shared memory: a partial result per thread and column.
// - Bytes: each element is read once.
// - Numerics: float32. Rows are combined in a fixed order.
#include "cuda/reduce/running_result.cuh"

namespace minidnn {

// Reduces x[outer][row][column] over the rows. kWide requires that the vectors of each row begin at multiples of 16
// bytes. Otherwise, a vector of a 16-bit type is extracted from two aligned vectors, and float32 is loaded element by
// element. In the last rows, all types are loaded element by element, because the second aligned vector may be past the
// end of the tensor.
template <class T, ReduceKind kKind, bool kWide> __global__ void __launch_bounds__(kReduceThreads)
    reduce_strided_axis(const __grid_constant__ ReduceColumns c, const T* x, void* y, Partial<kKind>* partials) {
  constexpr int kWidth = kVecWidth<T>;
  constexpr bool kExtracts = !kWide && sizeof(T) < 4;
  __shared__ RunningResult<kKind> shared[kReduceThreads * kWidth];
  const int lanes = int(c.lanes), high = kReduceThreads / lanes, across = threadIdx.x % lanes,
            down = threadIdx.x / lanes;
  int64_t rest = blockIdx.x;
  const int64_t block = rest % c.column_blocks;
  rest /= c.column_blocks;
  const int64_t chunk = rest % c.chunks, outer = rest / c.chunks;
  const int64_t first = block * lanes * kWidth, column = first + across * kWidth;
  const int64_t begin = chunk * c.rows_per_chunk, end = min_of(c.rows, begin + c.rows_per_chunk);
  const Map map(c.mode);
  RunningResult<kKind> sums[kWidth];
  if (column < c.columns) {
    x += c.outer.offset_of(outer) + column;
    const int count = int(min_of<int64_t>(kWidth, c.columns - column));
    const int64_t whole = kWide ? end : min_of(end, c.whole_rows);
    int64_t row = begin + down;
    for (; row < whole; row += kAhead * high) {
      Vec<T> in[kAhead], next[kExtracts ? kAhead : 1];
      [[maybe_unused]] int shift[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (row + u * high < whole) {
          const T* from = x + (row + u * high) * c.pitch;
          if constexpr (kExtracts) {
            shift[u] = int(reinterpret_cast<uint64_t>(from) / sizeof(T) % kWidth);
            from -= shift[u];
            next[u] = Vec<T>::load(from + (shift[u] + count > kWidth ? kWidth : 0), c.policy);
          }
          if constexpr (kWide || kExtracts) in[u] = Vec<T>::load(from, c.policy);
          else {
#pragma unroll
            for (int e = 0; e < kWidth; ++e) in[u].put(e, from[e]);
          }
        }
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (row + u * high < whole) {
          if constexpr (kExtracts) in[u] = extract(in[u], next[u], uint32_t(shift[u]));
#pragma unroll
          for (int e = 0; e < kWidth; ++e)
            take<kKind>(sums[e], float(in[u].get(e)), int32_t(row - begin) + u * high, map);
        }
    }
    if constexpr (!kWide) {
      row = begin + down;
      if (row < whole) row += ceil_div(whole - row, int64_t(high)) * high;
      for (; row < end; row += high)
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          if (e < count) take<kKind>(sums[e], float(x[row * c.pitch + e]), int32_t(row - begin), map);
    }
  }
  griddep_launch_dependents();
#pragma unroll
  for (int e = 0; e < kWidth; ++e) shared[(down * lanes + across) * kWidth + e] = sums[e];
  __syncthreads();
  for (int i = threadIdx.x; i < lanes * kWidth && first + i < c.columns; i += kReduceThreads) {
    Partial<kKind> s = shared[i].from(begin);
    for (int d = 1; d < high; ++d) s = reduction::combined<kKind, float>(s, shared[d * lanes * kWidth + i].from(begin));
    const int64_t output = outer * c.columns + first + i;
    if (c.chunks > 1) partials[chunk * c.outputs + output] = s;
    else finish<kKind>(c.mode, c.y, y, output, s, c.rows);
  }
}

}  // namespace minidnn
