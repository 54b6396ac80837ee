// SPDX-License-Identifier: Apache-2.0
// Batch norm of dense tensors in three launches: sums of chunks; a join of each channel's chunks; the map.
// - Group norm uses the same sums and map over the channels of each sample, and joins the channels of a group.
// - Grid: one block per chunk, so any number of chunks fills the GPU, and sums are bitwise reproducible. From sm_90 on,
//   the next launch may start while the preceding one ends.
// - Bytes: x, and backward dy, are read twice, by 16-byte vectors, several in flight per thread. The map goes through
//   the chunks, and through the items of a chunk, in reverse order: it begins with those that the L2 still holds.
// - Numerics: see sums.cuh.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/norm/sums.cuh"

namespace minidnn {

constexpr int kWarps = kNormThreads / 32;

// Adds U vectors of a plane, from item i on, kNormThreads items apart.
template <class T, int V, int U>
__device__ __forceinline__ void add_items(const PlaneCut<T, V>& cut, const NormArgs& a, uint32_t i, float first,
                                          Moments<float>& total) {
  Packed<T, V> x[U];
#pragma unroll
  for (int u = 0; u < U; ++u) x[u].load(typed<T>(a.x) + cut.offset(i + u * kNormThreads));
  add_vectors<T, V, U>(total, x, U, first);
}
template <class T, int V, int U>
__device__ __forceinline__ void add_items(const PlaneCut<T, V>& cut, const NormArgs& a, uint32_t i, float mean,
                                          Gradients<float>& total) {
  Packed<T, V> x[U], dy[U], y[U];
  int64_t at[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    at[u] = cut.offset(i + u * kNormThreads);
    x[u].load(typed<T>(a.x) + at[u]);
    dy[u].load(typed<T>(a.dy) + at[u]);
  }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < U; ++u) y[u].load(typed<T>(a.other) + at[u]);
#pragma unroll
    for (int u = 0; u < U; ++u) dy[u].keep_where_positive(y[u]);
  }
  add_vectors<T, V, U>(total, x, dy, U, mean);
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_planes_sums(const __grid_constant__ NormSplit s, NormArgs a, float4* partials) {
  constexpr int U = V == 1 ? 8 : 4;
  const PlaneCut<T, V> cut(s, blockIdx.x);
  const float about = backward ? typed<float>(a.mean)[s.by_group.quotient(uint32_t(cut.channel))]
                               : float(typed<T>(a.x)[cut.channel * s.plane]);
  typename SumsOf<backward>::type total{};
  uint32_t i = cut.begin + threadIdx.x;
  for (; i + (U - 1) * kNormThreads < cut.end; i += U * kNormThreads) add_items<T, V, U>(cut, a, i, about, total);
  // Small planes have few whole batches. One by one, the loads of the remaining items would wait for each other.
  if constexpr (V == 1) {
    for (; i + 3 * kNormThreads < cut.end; i += 4 * kNormThreads) add_items<T, V, 4>(cut, a, i, about, total);
    for (; i + kNormThreads < cut.end; i += 2 * kNormThreads) add_items<T, V, 2>(cut, a, i, about, total);
  }
  for (; i < cut.end; i += kNormThreads) add_items<T, V, 1>(cut, a, i, about, total);
  griddep_launch_dependents();
  __shared__ typename SumsOf<backward>::type of_warp[kWarps];
  total.join_warp();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll 1
  for (int w = 1; w < kWarps; ++w) total.join(of_warp[w]);
  partials[int64_t(cut.chunk) * s.channels + cut.channel] = partial_of(total, about);
}

// Adds U rows of a thread, from row i on. whole: all of them exist; otherwise those before cut.end do.
template <class T, int V, int U, bool whole>
__device__ __forceinline__ void add_rows(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i, ColumnAdds<V>& adds) {
  Packed<T, V> x[U];
  uint32_t have = 0;
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (whole || i + u * cut.s.rows < cut.end) x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows)), ++have;
  adds.add(x, have);
}
template <class T, int V, int U, bool whole>
__device__ __forceinline__ void add_rows(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i,
                                         ColumnGradientAdds<V>& adds) {
  Packed<T, V> x[U], dy[U], y[U];
  uint32_t have = 0;
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (whole || i + u * cut.s.rows < cut.end) {
      x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows));
      dy[u].load(typed<T>(a.dy) + cut.offset(i + u * cut.s.rows));
      ++have;
    }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (u < have) y[u].load(typed<T>(a.other) + cut.offset(i + u * cut.s.rows));
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (u < have) dy[u].keep_where_positive(y[u]);
  }
  adds.add(x, dy, have);
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_sums(const __grid_constant__ NormSplit s, NormArgs a, float4* partials) {
  using Adds = typename ColumnAddsOf<V, backward>::type;
  using Sums = typename Adds::Joined;
  constexpr int U = backward ? kNormBatch / 2 : kNormBatch;
  const ColumnCut<V> cut(s, blockIdx.x);
  Adds adds{};
  if constexpr (backward) {
    if (!cut.idle) {
#pragma unroll
      for (int k = 0; k < V; ++k) adds.mean[k] = typed<float>(a.mean)[s.by_group.quotient(uint32_t(cut.of_all() + k))];
    }
  }
  uint32_t i = cut.begin + cut.row;
  for (; i + (U - 1) * s.rows < cut.end; i += U * s.rows) add_rows<T, V, U, true>(cut, a, i, adds);
  if (i < cut.end) add_rows<T, V, U, false>(cut, a, i, adds);
  griddep_launch_dependents();
  __shared__ float shifts[32 * V];
  float shift[V]{};
  Sums total = adds.settled(cut, shifts, shift);
  __shared__ Sums left[kNormThreads / 2];
  join_rows(total, left, s.rows, s.width, cut.row, threadIdx.x - cut.row * s.width);
  if (cut.row != 0 || cut.idle) return;
#pragma unroll
  for (int k = 0; k < V; ++k)
    partials[int64_t(cut.chunk) * s.samples * s.channels + cut.of_all() + k] = total.partial(k, shift[k]);
}

// Joins the partial results of each channel. A block has kFinishChannels channels (128 bytes of a chunk); each row of
// kFinishChannels threads adds up every kFinishRows-th chunk. A block has few channels because columns have about a
// thousand chunks, and all of them are joined in this one launch.
template <bool backward>
__global__ void __launch_bounds__(kFinishThreads)
    norm_finish(const __grid_constant__ NormSplit s, NormArgs a, const float4* partials) {
  griddep_launch_dependents();
  griddep_wait();
  using Sums = typename FinishOf<backward>::type;
  constexpr uint32_t kFinishRows = kFinishThreads / kFinishChannels, kFinishWarps = kFinishThreads / 32;
  __shared__ Sums of_warp[kFinishWarps][kFinishChannels];
  const uint32_t column = threadIdx.x % kFinishChannels, row = threadIdx.x / kFinishChannels;
  const int64_t channel = int64_t(blockIdx.x) * kFinishChannels + column;
  const uint32_t group = s.by_group.divisor;
  const bool exists = channel * group < s.channels;
  Sums total{};
  double about = 0;
  if (exists) {
    const float4* mine = partials + channel * group;
    about = mean_of(*mine);
#pragma unroll 8
    for (uint32_t i = row; i < s.chunks * group; i += kFinishRows) {
      const uint32_t chunk = s.by_group.quotient(i);
      total.add(mine[chunk * s.channels + (i - chunk * group)], about);
    }
  }
  total.template join_warp<kFinishChannels>();
  if (threadIdx.x % 32 < kFinishChannels) of_warp[threadIdx.x / 32][column] = total;
  __syncthreads();
  if (row != 0 || !exists) return;
#pragma unroll
  for (uint32_t w = 1; w < kFinishWarps; ++w) total.join(of_warp[w][column]);
  write_statistic<backward>(s, a, channel, statistic_of(s, a, channel, about, total));
}

// Group norm: a warp joins the partial results of a group and writes the lines of its channels. Backward it also writes
// each channel's contribution to dscale and dbias, which norm_rows_finish adds up over the samples.
template <bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_groups_finish(const __grid_constant__ NormSplit s, NormArgs a, const float4* partials, float2* parts,
                       NormLine* lines) {
  griddep_launch_dependents();
  griddep_wait();
  const int64_t group = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, all = s.samples * s.channels;
  const int of_group = int(s.by_group.divisor), lane = threadIdx.x % 32;
  const int64_t first = group * of_group;
  if (first >= all) return;
  const double n = double(s.members);
  // Channels are counted over all samples here; the parameters repeat for each sample.
  const int64_t parameter = first % s.parameters;
  const float* scale = typed<float>(a.scale);
  if constexpr (!backward) {
    const double about = mean_of(partials[first]);
    MomentSums total{};
#pragma unroll 4
    for (uint32_t i = lane; i < s.chunks * uint32_t(of_group); i += 32) {
      const uint32_t chunk = s.by_group.quotient(i);
      total.add(partials[chunk * all + first + (i - chunk * of_group)], about);
    }
    total.join_warp();
    const float mean = float(about + total.away / n),
                inv_std = norm::inverse_std(float(total.squares_of(n) / n), a.eps);
    if (lane == 0) static_cast<float*>(a.mean)[group] = mean, static_cast<float*>(a.inv_std)[group] = inv_std;
#pragma unroll 1
    for (int c = lane; c < of_group; c += 32) {
      const float one = scale ? scale[parameter + c] : 1.f, bias = a.bias ? typed<float>(a.bias)[parameter + c] : 0.f;
      lines[first + c] = {mean, one * inv_std, bias, 0};
    }
  } else {
    const float mean = typed<float>(a.mean)[group], inv_std = typed<float>(a.inv_std)[group];
    Gradients<double> total{};  // of dy scale
#pragma unroll 1
    for (int c = lane; c < of_group; c += 32) {
      Gradients<double> sums{};
#pragma unroll 4
      for (int64_t i = 0; i < s.chunks; ++i) {
        const float4 v = partials[i * all + first + c];
        sums.join({double(v.x), double(v.y)});
      }
      const double one = scale ? double(scale[parameter + c]) : 1.0, product = sums.product * double(inv_std);
      parts[first + c] = {float(product), float(sums.dy)};
      total.join({one * sums.dy, one * product});
    }
    total.join_warp();
    const float offset = float(double(inv_std) * total.dy / n);
    const float slope = float(double(inv_std) * double(inv_std) * total.product / n);
#pragma unroll 1
    for (int c = lane; c < of_group; c += 32)
      lines[first + c] = {mean, inv_std * (scale ? scale[parameter + c] : 1.f), offset, slope};
  }
}

// The coefficients of statistic c: group norm reads those that norm_groups_finish wrote; batch norm computes them.
template <bool backward>
__device__ __forceinline__ NormLine line_of(const NormSplit& s, const NormArgs& a, const NormLine* lines, int64_t c) {
  if (lines) return lines[c];
  if constexpr (backward) return line_of<true>(s, a, c, typed<float>(a.dbias)[c], typed<float>(a.dscale)[c]);
  const float inv_std = a.var ? norm::inverse_std(typed<float>(a.var)[c], a.eps) : typed<float>(a.inv_std)[c];
  return line_of<false>(s, a, c, typed<float>(a.mean)[c], inv_std);
}

// Maps U vectors, from item i on, `step` items apart.
template <class T, int V, int U, bool backward, int L, class Cut>
__device__ __forceinline__ void map_vectors(const Cut& cut, const NormArgs& a, uint32_t i, uint32_t step,
                                            const NormLine (&lines)[L]) {
  Packed<T, V> x[U], dy[U], other[U];
  int64_t at[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    at[u] = cut.offset(i + u * step);
    x[u].load(typed<T>(a.x) + at[u]);
    if constexpr (backward) dy[u].load(typed<T>(a.dy) + at[u]);
  }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < U; ++u) other[u].load(typed<T>(a.other) + at[u]);
    if constexpr (backward) {
#pragma unroll
      for (int u = 0; u < U; ++u) dy[u].keep_where_positive(other[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) map_vector<T, V, backward>(a, at[u], x[u], dy[u], other[u], lines);
}

// Maps a thread's items from `first` on, in reverse: first those behind the last whole batch, then the whole batches
// from the last to the first.
template <class T, int V, bool backward, int L, class Cut>
__device__ __forceinline__ void map_backwards(const Cut& cut, const NormArgs& a, uint32_t first, uint32_t step,
                                              const NormLine (&lines)[L]) {
  constexpr int U = V == 1 ? 8 : 4;
  uint32_t whole = (cut.end - cut.begin) / (U * step), i = first + whole * (U * step);
  if constexpr (V == 1) {  // small planes: see norm_planes_sums
    for (; i + 3 * step < cut.end; i += 4 * step) map_vectors<T, V, 4, backward>(cut, a, i, step, lines);
    for (; i + step < cut.end; i += 2 * step) map_vectors<T, V, 2, backward>(cut, a, i, step, lines);
  }
  for (; i < cut.end; i += step) map_vectors<T, V, 1, backward>(cut, a, i, step, lines);
  while (whole > 0) map_vectors<T, V, U, backward>(cut, a, first + --whole * (U * step), step, lines);
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_planes_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* given) {
  const PlaneCut<T, V> cut(s, gridDim.x - 1 - blockIdx.x);
  griddep_wait();
  const NormLine lines[1] = {line_of<backward>(s, a, given, cut.channel)};
  map_backwards<T, V, backward>(cut, a, cut.begin + threadIdx.x, kNormThreads, lines);
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* given) {
  const ColumnCut<V> cut(s, gridDim.x - 1 - blockIdx.x);
  griddep_wait();
  if (cut.idle) return;
  NormLine lines[V];
  if (V > 1 && !given && s.by_group.divisor >= V) {  // a vector has elements of two statistics at most
    const uint32_t from = uint32_t(cut.channel), first = s.by_group.quotient(from);
    const uint32_t last = s.by_group.quotient(from + V - 1);
    lines[0] = line_of<backward>(s, a, nullptr, first);
    const NormLine other = line_of<backward>(s, a, nullptr, last);
#pragma unroll
    for (int k = 1; k < V; ++k) lines[k] = s.by_group.quotient(from + k) == first ? lines[0] : other;
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k)
      lines[k] =
          line_of<backward>(s, a, given, given ? cut.of_all() + k : s.by_group.quotient(uint32_t(cut.channel + k)));
  }
  map_backwards<T, V, backward>(cut, a, cut.begin + cut.row, s.rows, lines);
}

}  // namespace minidnn
