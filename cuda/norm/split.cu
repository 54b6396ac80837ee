// SPDX-License-Identifier: Apache-2.0
// Batch norm of dense tensors in three launches: sums of chunks, a channel's chunks joined, and the map. Group norm takes
// the same sums and map over the channels of each sample, and joins those of a group. 16-byte
// vectors, several in flight a thread. x is read twice (backward dy too); the map walks backwards, so that it begins
// with what the L2 still holds. A chunk is a block: any number of them fills the machine, and sums repeat bit by bit.
//
// Planes sum x less the channel's first element: each batch of a thread's vectors has its mean and its squares about
// that mean, and batches join by Chan's formula. Columns would do so for every element of a vector: they sum x less the
// thread's first element, and squares of that, and the elements of a thread are few: for any one of n elements
// (it - mean)^2 <= var n. So neither |mean| >> std nor a far first element costs digits.
// A partial result is four floats: count, mean, squares, what the mean is counted from; backward two sums.
#include "cpp/norm/norm_math.h"
#include "cuda/norm/split.cuh"
#include "cuda/norm/split.h"

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
  if constexpr (V == 1) {  // small planes have few batches, and what is left over would be a chain of loads
    for (; i + 3 * kNormThreads < cut.end; i += 4 * kNormThreads) add_vectors<T, V, 4>(cut, a, i, about, total);
    for (; i + kNormThreads < cut.end; i += 2 * kNormThreads) add_vectors<T, V, 2>(cut, a, i, about, total);
  }
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

// U rows of a thread from i on; with `whole` all of them exist, else those before cut.end.
template <int U, bool whole, int V> __device__ __forceinline__ bool has_row(const ColumnCut<V>& cut, uint32_t i,
                                                                            int u) {
  return whole || i + u * cut.s.rows < cut.end;
}

template <int V> struct ColumnMoments {
  float n, mean[V], squares[V];
  __device__ __forceinline__ void join(const ColumnMoments& o) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      Moments<float> both{n, mean[k], squares[k]};
      both.join({o.n, o.mean[k], o.squares[k]});
      mean[k] = both.mean, squares[k] = both.squares;
    }
    n += o.n;
  }
  __device__ __forceinline__ float4 partial(int k, float shift) const { return {n, mean[k], squares[k], shift}; }
};
// What a thread adds up: x - shift, and its squares.
template <int V> struct ColumnAdds {
  float n, sum[V], squares[V], shift[V];
  template <class T, int U, bool whole>
  __device__ __forceinline__ void add(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i) {
    Packed<T, V> x[U];
    float rows = 0;
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (has_row<U, whole>(cut, i, u)) x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows)), rows += 1;
    if (n == 0) {
#pragma unroll
      for (int k = 0; k < V; ++k) shift[k] = x[0][k];
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      float some = 0, square = 0;
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (has_row<U, whole>(cut, i, u)) {
          const float away = x[u][k] - shift[k];
          some += away, square += away * away;
        }
      sum[k] += some, squares[k] += square;
    }
    n += rows;
  }
  // With the mean counted from the shift of the block's first row of threads, `of_block`, which becomes it.
  __device__ __forceinline__ ColumnMoments<V> settled(const ColumnCut<V>& cut, float (&of_block)[V]) const {
    __shared__ float shifts[32 * V];
    const uint32_t at = (threadIdx.x - cut.row * cut.s.width) * V;
    if (cut.row == 0) {
#pragma unroll
      for (int k = 0; k < V; ++k) shifts[at + k] = shift[k];
    }
    __syncthreads();
    ColumnMoments<V> m{n};
    const float share = n > 0 ? 1 / n : 0.f;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      of_block[k] = shifts[at + k];
      const float from_shift = sum[k] * share;
      m.mean[k] = n > 0 ? (shift[k] - of_block[k]) + from_shift : 0.f;
      m.squares[k] = max_or_nan(squares[k] - sum[k] * from_shift, 0.f);
    }
    return m;
  }
};
template <int V> struct ColumnGradients {
  float dy[V], product[V];
  __device__ __forceinline__ void join(const ColumnGradients& o) {
#pragma unroll
    for (int k = 0; k < V; ++k) dy[k] += o.dy[k], product[k] += o.product[k];
  }
  __device__ __forceinline__ float4 partial(int k, float) const { return {dy[k], product[k], 0, 0}; }
};
template <int V> struct ColumnGradientAdds {
  ColumnGradients<V> sums;
  float mean[V];
  template <class T, int U, bool whole>
  __device__ __forceinline__ void add(const ColumnCut<V>& cut, const NormArgs& a, uint32_t i) {
    Packed<T, V> x[U], g[U], y[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (has_row<U, whole>(cut, i, u)) {
        x[u].load(typed<T>(a.x) + cut.offset(i + u * cut.s.rows));
        g[u].load(typed<T>(a.dy) + cut.offset(i + u * cut.s.rows));
      }
    if (a.other) {
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (has_row<U, whole>(cut, i, u)) y[u].load(typed<T>(a.other) + cut.offset(i + u * cut.s.rows));
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      float some = 0, products = 0;
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (has_row<U, whole>(cut, i, u)) {
          const float one = a.other ? where_positive(g[u][k], y[u][k]) : g[u][k];
          some += one, products += one * (x[u][k] - mean[k]);
        }
      sums.dy[k] += some, sums.product[k] += products;
    }
  }
  __device__ __forceinline__ ColumnGradients<V> settled(const ColumnCut<V>&, float (&)[V]) const { return sums; }
};
template <int V, bool backward> struct ColumnSums {
  using Adds = ColumnAdds<V>;
  using Joined = ColumnMoments<V>;
};
template <int V> struct ColumnSums<V, true> {
  using Adds = ColumnGradientAdds<V>;
  using Joined = ColumnGradients<V>;
};

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_sums(const __grid_constant__ NormSplit s, NormArgs a, float4* partials) {
  using Sums = typename ColumnSums<V, backward>::Joined;
  constexpr int U = backward ? kNormBatch / 2 : kNormBatch;
  const ColumnCut<V> cut(s, blockIdx.x);
  typename ColumnSums<V, backward>::Adds adds{};
  if constexpr (backward) {
    if (!cut.idle) {
#pragma unroll
      for (int k = 0; k < V; ++k) adds.mean[k] = typed<float>(a.mean)[s.by_group.quotient(uint32_t(cut.of_all() + k))];
    }
  }
  uint32_t i = cut.begin + cut.row;
  for (; i + (U - 1) * s.rows < cut.end; i += U * s.rows) adds.template add<T, U, true>(cut, a, i);
  if (i < cut.end) adds.template add<T, U, false>(cut, a, i);
  float shift[V]{};
  Sums total = adds.settled(cut, shift);
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
    partials[int64_t(cut.chunk) * s.samples * s.channels + cut.of_all() + k] = total.partial(k, shift[k]);
}

// Partial results of a channel or group, added up in float64. Moments count from the mean of one partial result, of m
// elements: (that - mean)^2 <= var n / m, so few digits are lost, and no addition waits for a division as joins do.
__device__ __forceinline__ double mean_of(const float4& partial) { return double(partial.w) + double(partial.y); }
struct MomentSums {
  double away, squares;
  __device__ __forceinline__ void add(const float4& v, double about) {
    const double n = double(v.x), apart = mean_of(v) - about;
    away += n * apart, squares += double(v.z) + n * apart * apart;
  }
  __device__ __forceinline__ void join(const MomentSums& o) { away += o.away, squares += o.squares; }
  template <int first = 1> __device__ __forceinline__ void join_warp() {
#pragma unroll
    for (int lane = first; lane < 32; lane *= 2) {
      away += __shfl_xor_sync(0xffffffff, away, lane);
      squares += __shfl_xor_sync(0xffffffff, squares, lane);
    }
  }
  __device__ __forceinline__ double squares_of(double n) const { return max_or_nan(squares - away / n * away, 0.0); }
};
struct GradientSums : Gradients<double> {
  __device__ __forceinline__ void add(const float4& v, double) { join({double(v.x), double(v.y)}); }
};

__device__ __forceinline__ void write_sums(const NormSplit& s, const NormArgs& a, int64_t channel, double about,
                                           const MomentSums& total) {
  const double n = double(s.members), mean = about + total.away / n, squares = total.squares_of(n);
  static_cast<float*>(a.mean)[channel] = float(mean);
  static_cast<float*>(a.inv_std)[channel] = norm::inverse_std(float(squares / n), a.eps);
  if (!a.running_mean) return;
  const float momentum = float(a.momentum), keep = float(1 - a.momentum);
  float& running_mean = static_cast<float*>(a.running_mean)[channel];
  float& running_var = static_cast<float*>(a.running_var)[channel];
  running_mean = keep * running_mean + momentum * float(mean);
  running_var = keep * running_var + momentum * float(squares / max_of(n - 1, 1.0));
}
__device__ __forceinline__ void write_sums(const NormSplit&, const NormArgs& a, int64_t channel, double,
                                           const GradientSums& total) {
  static_cast<float*>(a.dbias)[channel] = float(total.dy);
  static_cast<float*>(a.dscale)[channel] = float(total.product * double(typed<float>(a.inv_std)[channel]));
}

// A block joins kFinishChannels channels, 128 bytes of a chunk: each row of so many threads every kFinishRows-th chunk.
// Few channels a block, for columns leave a thousand chunks, and what waits for them is this one launch.
template <bool backward> struct FinishOf {
  using type = MomentSums;
};
template <> struct FinishOf<true> {
  using type = GradientSums;
};
template <bool backward>
__global__ void __launch_bounds__(kFinishThreads)
    norm_finish(const __grid_constant__ NormSplit s, NormArgs a, const float4* partials) {
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
  write_sums(s, a, channel, about, total);
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

// Batch norm's line of statistic c; group norm's have been written.
template <bool backward>
__device__ __forceinline__ NormLine line_of(const NormSplit& s, const NormArgs& a, const NormLine* lines, int64_t c) {
  if (lines) return lines[c];
  const float scale = typed<float>(a.scale)[c];
  const float inv_std = a.var ? norm::inverse_std(typed<float>(a.var)[c], a.eps) : typed<float>(a.inv_std)[c];
  NormLine line{typed<float>(a.mean)[c], scale * inv_std, 0, 0};
  if constexpr (backward) {
    const float per_member = 1 / float(s.members);  // one division a thread, not two a channel
    line.offset = line.factor * (typed<float>(a.dbias)[c] * per_member);
    line.slope = line.factor * (typed<float>(a.dscale)[c] * per_member * inv_std);
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

// Batches of U vectors from i on while they are whole; returns where the rest begins.
template <class T, int V, int U, bool backward>
__device__ __forceinline__ uint32_t map_batches(const PlaneCut<T, V>& cut, const NormArgs& a, uint32_t i,
                                                const NormLine (&line)[1]) {
  for (; i + (U - 1) * kNormThreads < cut.end; i += U * kNormThreads) {
    int64_t at[U];
#pragma unroll
    for (int u = 0; u < U; ++u) at[u] = cut.offset(i + u * kNormThreads);
    map_vectors<T, V, U, backward>(a, at, line);
  }
  return i;
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_planes_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* lines) {
  constexpr int U = V == 1 ? 8 : 4;
  const PlaneCut<T, V> cut(s, gridDim.x - 1 - blockIdx.x);
  const NormLine line[1] = {line_of<backward>(s, a, lines, cut.channel)};
  uint32_t i = map_batches<T, V, U, backward>(cut, a, cut.begin + threadIdx.x, line);
  if constexpr (V == 1)
    i = map_batches<T, V, 2, backward>(cut, a, map_batches<T, V, 4, backward>(cut, a, i, line), line);
  map_batches<T, V, 1, backward>(cut, a, i, line);
}

template <class T, int V, bool backward>
__global__ void __launch_bounds__(kNormThreads)
    norm_columns_map(const __grid_constant__ NormSplit s, NormArgs a, const NormLine* given) {
  constexpr int U = V == 1 ? 8 : 4;
  const ColumnCut<V> cut(s, gridDim.x - 1 - blockIdx.x);
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
