// SPDX-License-Identifier: Apache-2.0
// Batch norm of dense tensors in three launches: sums of chunks, a channel's chunks joined, and the map. Group norm takes
// the same sums and map over the channels of each sample, and joins those of a group. 16-byte vectors,
// several in flight a thread. x is read twice (backward dy too); the map walks backwards, so that it begins with what the
// L2 still holds. A chunk is a block: any number of them fills the machine, and sums repeat bit by bit.
//
// Sums are taken of x less the channel's first element: each batch of a thread's vectors has its mean and its squares
// about that mean, and batches join by Chan's formula. So neither |mean| >> std nor a far first element costs digits.
// A partial result is four floats: count, mean, squares, first element; backward two sums.
#include "cpp/norm/norm_math.h"
#include "cuda/norm/split.cuh"

namespace minidnn {

constexpr int kWarps = kNormThreads / 32;

template <bool backward> struct SumsOf {
  using type = Moments<float>;
};
template <> struct SumsOf<true> {
  using type = Gradients<float>;
};

// dy where y > 0.
__device__ __forceinline__ float where_positive(float dy, float y) { return y <= 0 ? 0.f : dy; }

__device__ __forceinline__ float4 partial_of(const Moments<float>& m, float first) {
  return {m.n, m.mean, m.squares, first};
}
__device__ __forceinline__ float4 partial_of(const Gradients<float>& g, float) { return {g.dy, g.product, 0, 0}; }

// One channel's vectors begin..end, counted over all images.
template <class T, int V> struct PlaneCut {
  const NormSplit& s;
  int64_t channel;
  uint32_t begin, end, chunk;
  __device__ PlaneCut(const NormSplit& split, uint32_t block) : s(split) {
    channel = s.by_chunks.quotient(block);
    chunk = block - uint32_t(channel) * s.chunks;
    begin = chunk * s.chunk;
    end = min_of(begin + s.chunk, s.items);
  }
  __device__ __forceinline__ int64_t offset(uint32_t item) const {
    const uint32_t image = s.by_plane.quotient(item);
    return (int64_t(image) * s.channels + channel) * s.plane + int64_t(item - image * s.by_plane.divisor) * V;
  }
};

template <class T, int V, int U>
__device__ __forceinline__ void add_vectors(const PlaneCut<T, V>& cut, const NormArgs& a, uint32_t i, float first,
                                            Moments<float>& total) {
  Packed<T, V> x[U];
#pragma unroll
  for (int u = 0; u < U; ++u) x[u].load(typed<T>(a.x) + cut.offset(i + u * kNormThreads));
  float sum = 0;
#pragma unroll
  for (int u = 0; u < U; ++u)
#pragma unroll
    for (int k = 0; k < V; ++k) sum += x[u][k] - first;
  Moments<float> some{U * V, sum * (1.f / (U * V)), 0};
#pragma unroll
  for (int u = 0; u < U; ++u)
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float away = (x[u][k] - first) - some.mean;
      some.squares += away * away;
    }
  total.join(some);
}
template <class T, int V, int U>
__device__ __forceinline__ void add_vectors(const PlaneCut<T, V>& cut, const NormArgs& a, uint32_t i, float mean,
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
  }
  Gradients<float> some{};
#pragma unroll
  for (int u = 0; u < U; ++u)
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float g = a.other ? where_positive(dy[u][k], y[u][k]) : dy[u][k];
      some.dy += g, some.product += g * (x[u][k] - mean);
    }
  total.join(some);
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
  for (; i + (U - 1) * kNormThreads < cut.end; i += U * kNormThreads) add_vectors<T, V, U>(cut, a, i, about, total);
  for (; i < cut.end; i += kNormThreads) add_vectors<T, V, 1>(cut, a, i, about, total);
  __shared__ typename SumsOf<backward>::type of_warp[kWarps];
  total.join_warp();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll 1
  for (int w = 1; w < kWarps; ++w) total.join(of_warp[w]);
  partials[int64_t(cut.chunk) * s.channels + cut.channel] = partial_of(total, about);
}

// Rows begin..end of `width` vectors of channels, one vector a thread.
template <int V> struct ColumnCut {
  const NormSplit& s;
  int64_t channel, sample, start;  // start: of the sample, in elements
  uint32_t row, begin, end, chunk;
  bool idle;
  __device__ ColumnCut(const NormSplit& split, uint32_t block) : s(split) {
    const uint32_t all_tiles = s.by_chunks.quotient(block);
    chunk = block - all_tiles * s.chunks;
    sample = s.by_tiles.quotient(all_tiles);
    start = sample * s.items * s.channels;
    const uint32_t tile = all_tiles - uint32_t(sample) * s.tiles;
    row = s.by_width.quotient(threadIdx.x);
    const uint32_t vector = tile * s.width + threadIdx.x - row * s.width;
    channel = int64_t(vector) * V;
    idle = row >= s.rows || vector >= s.vectors;
    begin = chunk * s.chunk;
    end = idle ? 0 : min_of(begin + s.chunk, s.items);
  }
  __device__ __forceinline__ int64_t offset(uint32_t item) const {
    return start + int64_t(item) * s.channels + channel;
  }
  __device__ __forceinline__ int64_t of_all() const { return sample * s.channels + channel; }  // among all channels
};

template <int V> struct ColumnMoments {
  float n, mean[V], squares[V];
  template <class T, int U>
  __device__ __forceinline__ void add(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i, const float (&first)[V]) {
    Packed<T, V> x[U];
#pragma unroll
    for (int u = 0; u < U; ++u) x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows));
    const float all = n + U, share = U / all, between = n * share;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      float sum = 0, some = 0;
#pragma unroll
      for (int u = 0; u < U; ++u) sum += x[u][k] - first[k];
      const float about = sum * (1.f / U);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const float away = (x[u][k] - first[k]) - about;
        some += away * away;
      }
      const float apart = about - mean[k];
      mean[k] += apart * share;
      squares[k] += some + apart * apart * between;
    }
    n = all;
  }
  __device__ __forceinline__ void join(const ColumnMoments& o) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      Moments<float> both{n, mean[k], squares[k]};
      both.join({o.n, o.mean[k], o.squares[k]});
      mean[k] = both.mean, squares[k] = both.squares;
    }
    n += o.n;
  }
  __device__ __forceinline__ float4 partial(int k, float first) const { return {n, mean[k], squares[k], first}; }
};
template <int V> struct ColumnGradients {
  float dy[V], product[V];
  template <class T, int U>
  __device__ __forceinline__ void add(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i, const float (&mean)[V]) {
    Packed<T, V> x[U], g[U], y[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows));
      g[u].load(typed<T>(a.dy) + cut.offset(i + u * cut.s.rows));
    }
    if (a.other) {
#pragma unroll
      for (int u = 0; u < U; ++u) y[u].load(typed<T>(a.other) + cut.offset(i + u * cut.s.rows));
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      float some = 0, products = 0;
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const float one = a.other ? where_positive(g[u][k], y[u][k]) : g[u][k];
        some += one, products += one * (x[u][k] - mean[k]);
      }
      dy[k] += some, product[k] += products;
    }
  }
  __device__ __forceinline__ void join(const ColumnGradients& o) {
#pragma unroll
    for (int k = 0; k < V; ++k) dy[k] += o.dy[k], product[k] += o.product[k];
  }
  __device__ __forceinline__ float4 partial(int k, float) const { return {dy[k], product[k], 0, 0}; }
};
template <int V, bool backward> struct ColumnSums {
  using type = ColumnMoments<V>;
};
template <int V> struct ColumnSums<V, true> {
  using type = ColumnGradients<V>;
};

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_sums(const __grid_constant__ NormSplit s, NormArgs a, float4* partials) {
  using Sums = typename ColumnSums<V, backward>::type;
  constexpr int U = backward ? 4 : 8;
  const ColumnCut<V> cut(s, blockIdx.x);
  float about[V]{};
  if (!cut.idle) {
#pragma unroll
    for (int k = 0; k < V; ++k)
      about[k] = backward ? typed<float>(a.mean)[s.by_group.quotient(uint32_t(cut.of_all() + k))]
                          : float(typed<T>(a.x)[cut.start + cut.channel + k]);
  }
  Sums total{};
  uint32_t i = cut.begin + cut.row;
  for (; i + (U - 1) * s.rows < cut.end; i += U * s.rows) total.template add<T, U>(cut, a, i, about);
  for (; i < cut.end; i += s.rows) total.template add<T, 1>(cut, a, i, about);
  // The rows of threads join by halves: those of the upper half leave their sums in shared memory.
  __shared__ Sums left[kNormThreads / 2];
#pragma unroll 1
  for (uint32_t rows = s.rows; rows > 1;) {
    const uint32_t half = (rows + 1) / 2;
    if (half <= cut.row && cut.row < rows) left[threadIdx.x - half * s.width] = total;
    __syncthreads();
    if (cut.row < rows - half) total.join(left[threadIdx.x]);
    __syncthreads();
    rows = half;
  }
  if (cut.row != 0 || cut.idle) return;
#pragma unroll
  for (int k = 0; k < V; ++k)
    partials[int64_t(cut.chunk) * s.samples * s.channels + cut.of_all() + k] = total.partial(k, about[k]);
}

// A block joins the partial results of 32 channels, in float64: a warp takes every 16th, then warps join by halves.
template <bool backward> struct JoinedOf {
  using type = Moments<double>;
  __device__ static type from(const float4& v) { return {double(v.x), double(v.y), double(v.z)}; }
};
template <> struct JoinedOf<true> {
  using type = Gradients<double>;
  __device__ static type from(const float4& v) { return {double(v.x), double(v.y)}; }
};

__device__ __forceinline__ void write_sums(const NormSplit& s, const NormArgs& a, int64_t channel, double first,
                                           const Moments<double>& total) {
  const double n = double(s.members), mean = first + total.mean;
  static_cast<float*>(a.mean)[channel] = float(mean);
  static_cast<float*>(a.inv_std)[channel] = norm::inverse_std(float(total.squares / n), a.eps);
  if (!a.running_mean) return;
  const float momentum = float(a.momentum), keep = float(1 - a.momentum);
  float& running_mean = static_cast<float*>(a.running_mean)[channel];
  float& running_var = static_cast<float*>(a.running_var)[channel];
  running_mean = keep * running_mean + momentum * float(mean);
  running_var = keep * running_var + momentum * float(total.squares / max_of(n - 1, 1.0));
}
__device__ __forceinline__ void write_sums(const NormSplit&, const NormArgs& a, int64_t channel, double,
                                           const Gradients<double>& total) {
  static_cast<float*>(a.dbias)[channel] = float(total.dy);
  static_cast<float*>(a.dscale)[channel] = float(total.product * double(typed<float>(a.inv_std)[channel]));
}

template <bool backward>
__global__ void __launch_bounds__(kNormFinishThreads)
    norm_finish(const __grid_constant__ NormSplit s, NormArgs a, const float4* partials) {
  using Sums = typename JoinedOf<backward>::type;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t channel = int64_t(blockIdx.x) * kNormFinishChannels + lane;
  Sums total{};
  double first = 0;
  if (channel < s.channels) {
    first = double(partials[channel].w);
#pragma unroll 4
    for (uint32_t i = warp; i < s.chunks; i += kNormFinishWarps)
      total.join(JoinedOf<backward>::from(partials[int64_t(i) * s.channels + channel]));
  }
  total = join_warps(total);
  if (warp == 0 && channel < s.channels) write_sums(s, a, channel, first, total);
}

// Group norm: a warp joins the partial results of a group and writes the lines of its channels; backward also each
// channel's part of dscale and dbias, for norm_rows_finish.
template <bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_groups_finish(const __grid_constant__ NormSplit s, NormArgs a, const float4* partials, float2* parts,
                       NormLine* lines) {
  const int64_t group = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, all = s.samples * s.channels;
  const int of_group = int(s.by_group.divisor), lane = threadIdx.x % 32;
  const int64_t first = group * of_group;
  if (first >= all) return;
  const double n = double(s.members);
  // Planes of all samples are channels here; parameters repeat.
  const int64_t parameter = first % s.parameters;
  const float* scale = typed<float>(a.scale);
  if constexpr (!backward) {
    Moments<double> total{};
#pragma unroll 4
    for (int64_t i = lane; i < int64_t(s.chunks) * of_group; i += 32) {
      const float4 v = partials[i / of_group * all + first + i % of_group];
      total.join({double(v.x), double(v.w) + double(v.y), double(v.z)});
    }
    total.join_warp();
    const float mean = float(total.mean), inv_std = norm::inverse_std(float(total.squares / n), a.eps);
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

// Batch norm's line of channel c; group norm's have been written.
template <bool backward>
__device__ __forceinline__ NormLine line_of(const NormSplit& s, const NormArgs& a, const NormLine* lines, int64_t c) {
  if (lines) return lines[c];
  const float scale = typed<float>(a.scale)[c];
  const float inv_std = a.var ? norm::inverse_std(typed<float>(a.var)[c], a.eps) : typed<float>(a.inv_std)[c];
  NormLine line{typed<float>(a.mean)[c], scale * inv_std, 0, 0};
  if constexpr (backward) {
    const float n = float(s.members);
    line.offset = line.factor * (typed<float>(a.dbias)[c] / n);
    line.slope = line.factor * (typed<float>(a.dscale)[c] / n * inv_std);
  } else line.offset = typed<float>(a.bias)[c];
  return line;
}

// norm_element() of vectors at offsets at[], with a line for each element of a vector, or one for all.
template <class T, int V, int U, bool backward, int L>
__device__ __forceinline__ void map_vectors(const NormArgs& a, const int64_t (&at)[U], const NormLine (&lines)[L]) {
  Packed<T, V> x[U], dy[U], other[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    x[u].load(typed<T>(a.x) + at[u]);
    if constexpr (backward) dy[u].load(typed<T>(a.dy) + at[u]);
  }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < U; ++u) other[u].load(typed<T>(a.other) + at[u]);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    float out[V], g[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const NormLine& c = lines[L == 1 ? 0 : k];
      const float deviation = x[u][k] - c.mean;
      if constexpr (backward) {
        g[k] = a.other ? where_positive(dy[u][k], other[u][k]) : dy[u][k];
        out[k] = g[k] * c.factor - c.offset - deviation * c.slope;
      } else {
        out[k] = deviation * c.factor + c.offset;
        if (a.other) out[k] += other[u][k];
        if (a.relu) out[k] = out[k] < 0 ? 0.f : out[k];
      }
    }
    Packed<T, V>::store(static_cast<T*>(a.out) + at[u], out);
    if constexpr (backward)
      if (a.dresidual) Packed<T, V>::store(static_cast<T*>(a.dresidual) + at[u], g);
  }
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_planes_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* lines) {
  constexpr int U = V == 1 ? 8 : 4;
  const PlaneCut<T, V> cut(s, gridDim.x - 1 - blockIdx.x);
  const NormLine line[1] = {line_of<backward>(s, a, lines, cut.channel)};
  uint32_t i = cut.begin + threadIdx.x;
  for (; i + (U - 1) * kNormThreads < cut.end; i += U * kNormThreads) {
    int64_t at[U];
#pragma unroll
    for (int u = 0; u < U; ++u) at[u] = cut.offset(i + u * kNormThreads);
    map_vectors<T, V, U, backward>(a, at, line);
  }
  for (; i < cut.end; i += kNormThreads) {
    const int64_t at[1] = {cut.offset(i)};
    map_vectors<T, V, 1, backward>(a, at, line);
  }
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* given) {
  constexpr int U = V == 1 ? 8 : 4;
  const ColumnCut<V> cut(s, gridDim.x - 1 - blockIdx.x);
  if (cut.idle) return;
  NormLine lines[V];
#pragma unroll
  for (int k = 0; k < V; ++k) lines[k] = line_of<backward>(s, a, given, cut.of_all() + k);
  uint32_t i = cut.begin + cut.row;
  for (; i + (U - 1) * s.rows < cut.end; i += U * s.rows) {
    int64_t at[U];
#pragma unroll
    for (int u = 0; u < U; ++u) at[u] = cut.offset(i + u * s.rows);
    map_vectors<T, V, U, backward>(a, at, lines);
  }
  for (; i < cut.end; i += s.rows) {
    const int64_t at[1] = {cut.offset(i)};
    map_vectors<T, V, 1, backward>(a, at, lines);
  }
}

}  // namespace minidnn
