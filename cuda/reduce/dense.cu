// SPDX-License-Identifier: Apache-2.0
// Reductions of float32, float16 and bfloat16 by vectors of 16 bytes, four in flight a thread: along rows (memory's order),
// along columns (across it), and of the parts into which either cuts few long sums. Each element is read once. Sums are
// float32: a thread's own in four strands, then trees. The order depends on shape and device alone, so results repeat.
#include "cuda/reduce/dense.h"

#include "cuda/reduce/lanes.cuh"

namespace minidnn {
namespace {

constexpr int kAhead = kReduceAhead;

// reduction::mapped() without a branch for each element: bits kept and turned round, then squared or tested.
struct Map {
  uint32_t keep, flip;
  bool squares, tests;
  float if_zero;

  __device__ explicit Map(ReduceMode m)
      : keep(m == ReduceMode::norm1 || m == ReduceMode::amax ? 0x7fffffff : 0xffffffff),
        flip(m == ReduceMode::min || m == ReduceMode::argmin ? 0x80000000 : 0),
        squares(m == ReduceMode::norm2 || m == ReduceMode::sumsq),
        tests(m == ReduceMode::any || m == ReduceMode::all),
        if_zero(m == ReduceMode::all ? 1.f : 0.f) {}
};

template <ReduceKind kind> using Partial = reduction::State<kind, float>;

// A thread's elements come in the order of their indices, which spares most of combined()'s comparisons.
template <ReduceKind kind>
__device__ __forceinline__ void take(Partial<kind>& s, float v, [[maybe_unused]] int64_t index, const Map& map) {
  v = __uint_as_float((__float_as_uint(v) & map.keep) ^ map.flip);
  if constexpr (kind == ReduceKind::sum) {
    s.value += v * (map.squares ? v : 1.f);
  } else if constexpr (kind == ReduceKind::prod) {
    s.value *= v;
  } else if constexpr (kind == ReduceKind::max) {
    const float truth = v == 0 ? map.if_zero : 1.f - map.if_zero;
    v = map.tests ? truth : v;
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(s.value) : "f"(v));
  } else {
    if (s.index < 0 || (!(v <= s.value) && s.value == s.value)) s = {v, index};
  }
}

template <class T> union Sixteen {
  uint4 whole;
  uint32_t words[4];
};
template <class T> __device__ __forceinline__ float element_of(const Sixteen<T>& v, int i) {
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(v.words[i]);
  } else {
    T e;
    e.bits = uint16_t(v.words[i / 2] >> i % 2 * 16);
    return float(e);
  }
}

template <ReduceKind kind>
__device__ __forceinline__ void finish(ReduceMode mode, const TensorDesc& y, void* to, int64_t output,
                                       const Partial<kind>& s, int64_t count) {
  reduction::finish<kind, float>(mode, y, to, y.offset_of(output), s, count);
}

}  // namespace

// Grid: an item to `lanes` threads, as many items as fit a block.
template <class T, ReduceKind kind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_rows(const __grid_constant__ ReduceRows r, const T* x, void* y, Partial<kind>* partials) {
  constexpr int kVector = 16 / sizeof(T);
  const int lanes = int(r.lanes), lane = threadIdx.x % lanes;
  const int64_t item = int64_t(blockIdx.x) * (kReduceThreads / lanes) + threadIdx.x / lanes;
  const Map map(r.mode);
  Partial<kind> strands[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) strands[u] = reduction::identity<kind, float>();
  int64_t output = item, part = 0;
  if (r.parts > 1) output = item / r.parts, part = item - output * r.parts;
  if (item < r.items) {
    int64_t begin = 0, first = part;
    if (r.slices > 1) first = part / r.slices, begin = (part - first * r.slices) * r.slice;
    first *= r.runs_a_part;
    const int64_t n = min_of(r.slice, r.run - begin), runs = r.runs.numel();
    x += r.kept.offset_of(output) + begin;
    for (int64_t run = first, last = min_of(runs, first + r.runs_a_part); run < last; ++run) {
      const T* from = x + r.runs.offset_of(run);
      const int64_t index = run * r.run + begin;
      const int64_t head = min_of(n, int64_t((16 - reinterpret_cast<uint64_t>(from) % 16) % 16 / sizeof(T)));
      const int64_t vectors = (n - head) / kVector, tail = head + vectors * kVector;
      for (int64_t i = lane; i < head; i += lanes) take<kind>(strands[0], float(from[i]), index + i, map);
      const uint4* body = reinterpret_cast<const uint4*>(from + head);
      for (int64_t v = lane; v < vectors; v += kAhead * lanes) {
        Sixteen<T> in[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors) in[u].whole = load_by(r.policy, body + v + u * lanes);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors)
#pragma unroll
            for (int e = 0; e < kVector; ++e)
              take<kind>(strands[u], element_of(in[u], e), index + head + (v + u * lanes) * kVector + e, map);
      }
      for (int64_t i = tail + lane; i < n; i += lanes) take<kind>(strands[0], float(from[i]), index + i, map);
    }
  }
  Partial<kind> s = reduction::combined<kind, float>(reduction::combined<kind, float>(strands[0], strands[1]),
                                                     reduction::combined<kind, float>(strands[2], strands[3]));
  s = reduce_lanes<kind, float>(s, lanes);
  if (lane > 0 || item >= r.items) return;
  if (r.parts > 1) partials[item] = s;
  else finish<kind>(r.mode, r.y, y, output, s, r.count);
}

// Grid: blocks of columns, fastest, then parts of the rows, then what is outside. A block is `lanes` by 256 / lanes.
template <class T, ReduceKind kind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_columns(const __grid_constant__ ReduceColumns c, const T* x, void* y, Partial<kind>* partials) {
  constexpr int kVector = 16 / sizeof(T);
  __shared__ Partial<kind> shared[kReduceThreads * kVector];
  const int lanes = int(c.lanes), high = kReduceThreads / lanes, across = threadIdx.x % lanes,
            down = threadIdx.x / lanes;
  int64_t rest = blockIdx.x;
  const int64_t block = rest % c.column_blocks;
  rest /= c.column_blocks;
  const int64_t part = rest % c.parts, outer = rest / c.parts;
  const int64_t first = block * lanes * kVector, column = first + across * kVector;
  const int64_t begin = part * c.rows_a_part, end = min_of(c.rows, begin + c.rows_a_part);
  const Map map(c.mode);
  Partial<kind> sums[kVector];
#pragma unroll
  for (int e = 0; e < kVector; ++e) sums[e] = reduction::identity<kind, float>();
  if (column < c.columns) {
    x += c.outer.offset_of(outer) + column;
    if (c.wide) {
      for (int64_t row = begin + down; row < end; row += kAhead * high) {
        Sixteen<T> in[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (row + u * high < end)
            in[u].whole = load_by(c.policy, reinterpret_cast<const uint4*>(x + (row + u * high) * c.pitch));
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (row + u * high < end)
#pragma unroll
            for (int e = 0; e < kVector; ++e) take<kind>(sums[e], element_of(in[u], e), row + u * high, map);
      }
    } else {
      for (int64_t row = begin + down; row < end; row += high)
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          if (column + e < c.columns) take<kind>(sums[e], float(x[row * c.pitch + e]), row, map);
    }
  }
#pragma unroll
  for (int e = 0; e < kVector; ++e) shared[(down * lanes + across) * kVector + e] = sums[e];
  __syncthreads();
  for (int i = threadIdx.x; i < lanes * kVector && first + i < c.columns; i += kReduceThreads) {
    Partial<kind> s = shared[i];
    for (int d = 1; d < high; ++d) s = reduction::combined<kind, float>(s, shared[d * lanes * kVector + i]);
    const int64_t output = outer * c.columns + first + i;
    if (c.parts > 1) partials[part * c.outputs + output] = s;
    else finish<kind>(c.mode, c.y, y, output, s, c.rows);
  }
}

template <ReduceKind kind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_parts(const __grid_constant__ ReduceParts r, const Partial<kind>* partials, void* y) {
  const int lanes = int(r.lanes), lane = threadIdx.x % lanes;
  const int64_t output = int64_t(blockIdx.x) * (kReduceThreads / lanes) + threadIdx.x / lanes;
  auto s = reduction::identity<kind, float>();
  if (output < r.outputs)
    for (int64_t part = lane; part < r.parts; part += lanes)
      s = reduction::combined<kind, float>(s, partials[output * r.output_step + part * r.part_step]);
  s = reduce_lanes<kind, float>(s, lanes);
  if (output < r.outputs && lane == 0) finish<kind>(r.mode, r.y, y, output, s, r.count);
}

}  // namespace minidnn
