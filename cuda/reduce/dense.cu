// SPDX-License-Identifier: Apache-2.0
// Reductions of float32, float16 and bfloat16: along rows (the order of memory), along columns (across it), and of the
// parts into which both split few long sums. Loads are vectors of 16 bytes, four in flight per thread. Each element is
// read once. Sums are float32: each thread keeps four partial sums, which are then combined by trees. The order of
// additions depends only on the shape and the device, so results are reproducible.
#include "cuda/reduce/dense.h"

#include "cuda/device/elementwise.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/reduce/lanes.cuh"

namespace minidnn {
namespace {

constexpr int kAhead = kReduceAhead;

// reduction::mapped() without a branch per element: bits are masked and flipped, then the value is squared or tested.
struct Map {
  uint32_t keep, flip;
  bool squares, tests;
  float if_zero, sign;

  __device__ explicit Map(ReduceMode m)
      : keep(m == ReduceMode::norm1 || m == ReduceMode::amax ? 0x7fffffff : 0xffffffff),
        flip(m == ReduceMode::min ? 0x80000000 : 0),
        squares(m == ReduceMode::norm2 || m == ReduceMode::sumsq),
        tests(m == ReduceMode::any || m == ReduceMode::all),
        if_zero(m == ReduceMode::all ? 1.f : 0.f),
        sign(m == ReduceMode::argmin ? -1.f : 1.f) {}
};

template <ReduceKind kind> using Partial = reduction::State<kind, float>;

// A thread's running result for its part of an output. Elements arrive in index order, which makes most comparisons of
// combined() unnecessary. For arg, `place` is the index within the part, and the initial state -inf at index 0 is
// correct: if all elements are -inf, it is the answer; otherwise a larger element replaces it.
template <ReduceKind kind> struct Strand {
  float value = reduction::identity<kind, float>().value;
  __device__ Partial<kind> from(int64_t) const { return {value}; }
};
template <> struct Strand<ReduceKind::arg> {
  float value = -INFINITY;
  int32_t place = 0;
  __device__ Partial<ReduceKind::arg> from(int64_t first) const { return {value, first + place}; }
};

template <ReduceKind kind>
__device__ __forceinline__ void take(Strand<kind>& s, float v, [[maybe_unused]] int32_t place, const Map& map) {
  if constexpr (kind == ReduceKind::arg) {
    const float largest = max_nan(__fmaf_rn(v, map.sign, 0.f), s.value);  // adding 0 turns -0 into 0
    if (__float_as_uint(largest) != __float_as_uint(s.value)) s.place = place;
    s.value = largest;
    return;
  }
  v = __uint_as_float((__float_as_uint(v) & map.keep) ^ map.flip);
  if constexpr (kind == ReduceKind::sum) {
    s.value += v * (map.squares ? v : 1.f);
  } else if constexpr (kind == ReduceKind::prod) {
    s.value *= v;
  } else if constexpr (kind == ReduceKind::max) {
    const float truth = v == 0 ? map.if_zero : 1.f - map.if_zero;
    v = map.tests ? truth : v;
    s.value = max_nan(s.value, v);
  }
}

template <class T> constexpr int kVector = 16 / int(sizeof(T));
template <class T> using Vector = Items<T, kVector<T>>;

template <class T> __device__ __forceinline__ Vector<T> load_vector(CachePolicy policy, const T* at) {
  return __builtin_bit_cast(Vector<T>, ld_global_cache_hint(policy, reinterpret_cast<const uint4*>(at)));
}
template <ReduceKind kind>
__device__ __forceinline__ void finish(ReduceMode mode, const TensorDesc& y, void* to, int64_t output,
                                       const Partial<kind>& s, int64_t count) {
  reduction::finish<kind, float>(mode, y, to, y.offset_of(output), s, count);
}

}  // namespace

// Reduces outputs whose elements are contiguous, in one run or several. Grid: `lanes` threads for each item (a part of
// an output), kReduceThreads / lanes items in a block.
template <class T, ReduceKind kind> __global__ void __launch_bounds__(kReduceThreads)
    reduce_rows(const __grid_constant__ ReduceRows r, const T* x, void* y, Partial<kind>* partials) {
  constexpr int V = kVector<T>;
  const int lanes = int(r.lanes), lane = threadIdx.x % lanes;
  const int64_t item = int64_t(blockIdx.x) * (kReduceThreads / lanes) + threadIdx.x / lanes;
  const Map map(r.mode);
  Strand<kind> strands[kAhead];
  int64_t output = item, part = 0, start = 0;  // start: the part's first element
  if (r.parts > 1) output = item / r.parts, part = item - output * r.parts;
  if (item < r.items) {
    int64_t begin = 0, first = part;
    if (r.slices > 1) first = part / r.slices, begin = (part - first * r.slices) * r.slice;
    first *= r.runs_a_part, start = first * r.run + begin;
    const int64_t n = min_of(r.slice, r.run - begin), runs = r.runs.numel();
    x += r.kept.offset_of(output) + begin;
    for (int64_t run = first, last = min_of(runs, first + r.runs_a_part); run < last; ++run) {
      const T* from = x + r.runs.offset_of(run);
      const int32_t place = int32_t((run - first) * r.run);
      const int64_t head = min_of(n, int64_t((16 - reinterpret_cast<uint64_t>(from) % 16) % 16 / sizeof(T)));
      const int64_t vectors = (n - head) / V, tail = head + vectors * V;
      for (int64_t i = lane; i < head; i += lanes) take<kind>(strands[0], float(from[i]), place + int32_t(i), map);
      const T* body = from + head;
      for (int64_t v = lane; v < vectors; v += kAhead * lanes) {
        Vector<T> in[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors) in[u] = load_vector(r.policy, body + (v + u * lanes) * V);
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
          if (v + u * lanes < vectors)
#pragma unroll
            for (int e = 0; e < V; ++e)
              take<kind>(strands[u], float(in[u].get(e)), place + int32_t(head + (v + u * lanes) * V) + e, map);
      }
      for (int64_t i = tail + lane; i < n; i += lanes) take<kind>(strands[0], float(from[i]), place + int32_t(i), map);
    }
  }
  griddep_launch_dependents();
  const auto joined = [&](int u) {
    return reduction::combined<kind, float>(strands[u].from(start), strands[u + 1].from(start));
  };
  Partial<kind> s = reduction::combined<kind, float>(joined(0), joined(2));
  s = reduce_lanes<kind, float>(s, lanes);
  if (lane > 0 || item >= r.items) return;
  if (r.parts > 1) partials[item] = s;
  else finish<kind>(r.mode, r.y, y, output, s, r.count);
}

// Reduces x[outer][row][column] over rows. Grid: blocks of columns (fastest), then parts of the rows, then outer
// indices. Block: `lanes` threads along a row by 256 / lanes rows.
// `wide`: the vectors of a row start at multiples of 16 bytes. Otherwise float32 is loaded element by element, and a
// vector of shorter elements is extracted from the two aligned vectors that it overlaps. Neighbouring threads read
// these vectors too, so the memory traffic does not grow. The last rows, where the second vector may be past the end of
// the tensor, are loaded element by element.
template <class T, ReduceKind kind, bool wide> __global__ void __launch_bounds__(kReduceThreads)
    reduce_columns(const __grid_constant__ ReduceColumns c, const T* x, void* y, Partial<kind>* partials) {
  constexpr int V = kVector<T>;
  constexpr bool kCut = !wide && sizeof(T) < 4;
  __shared__ Strand<kind> shared[kReduceThreads * V];
  const int lanes = int(c.lanes), high = kReduceThreads / lanes, across = threadIdx.x % lanes,
            down = threadIdx.x / lanes;
  int64_t rest = blockIdx.x;
  const int64_t block = rest % c.column_blocks;
  rest /= c.column_blocks;
  const int64_t part = rest % c.parts, outer = rest / c.parts;
  const int64_t first = block * lanes * V, column = first + across * V;
  const int64_t begin = part * c.rows_a_part, end = min_of(c.rows, begin + c.rows_a_part);
  const Map map(c.mode);
  Strand<kind> sums[V];
  if (column < c.columns) {
    x += c.outer.offset_of(outer) + column;
    const int count = int(min_of<int64_t>(V, c.columns - column));
    const int64_t whole = wide ? end : min_of(end, c.whole_rows);
    int64_t row = begin + down;
    for (; row < whole; row += kAhead * high) {
      Vector<T> in[kAhead], next[kCut ? kAhead : 1];
      [[maybe_unused]] int shift[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (row + u * high < whole) {
          const T* from = x + (row + u * high) * c.pitch;
          if constexpr (kCut) {
            shift[u] = int(reinterpret_cast<uint64_t>(from) / sizeof(T) % V), from -= shift[u];
            next[u] = load_vector(c.policy, from + (shift[u] + count > V ? V : 0));
          }
          if constexpr (wide || kCut) in[u] = load_vector(c.policy, from);
          else {
#pragma unroll
            for (int e = 0; e < V; ++e) in[u].put(e, from[e]);
          }
        }
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
        if (row + u * high < whole) {
          if constexpr (kCut) in[u] = cut<T, V>(in[u], next[u], uint32_t(shift[u]));
#pragma unroll
          for (int e = 0; e < V; ++e) take<kind>(sums[e], float(in[u].get(e)), int32_t(row - begin) + u * high, map);
        }
    }
    if constexpr (!wide) {
      row = begin + down;
      if (row < whole) row += ceil_div(whole - row, int64_t(high)) * high;
      for (; row < end; row += high)
#pragma unroll
        for (int e = 0; e < V; ++e)
          if (e < count) take<kind>(sums[e], float(x[row * c.pitch + e]), int32_t(row - begin), map);
    }
  }
  griddep_launch_dependents();
#pragma unroll
  for (int e = 0; e < V; ++e) shared[(down * lanes + across) * V + e] = sums[e];
  __syncthreads();
  for (int i = threadIdx.x; i < lanes * V && first + i < c.columns; i += kReduceThreads) {
    Partial<kind> s = shared[i].from(begin);
    for (int d = 1; d < high; ++d) s = reduction::combined<kind, float>(s, shared[d * lanes * V + i].from(begin));
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
  griddep_wait();
  if (output < r.outputs)
    for (int64_t part = lane; part < r.parts; part += lanes)
      s = reduction::combined<kind, float>(s, partials[output * r.output_step + part * r.part_step]);
  s = reduce_lanes<kind, float>(s, lanes);
  if (output < r.outputs && lane == 0) finish<kind>(r.mode, r.y, y, output, s, r.count);
}

}  // namespace minidnn
