// SPDX-License-Identifier: Apache-2.0
// Batch norm and group norm of dense tensors in three launches.
// - First launch: computes sums over chunks. A chunk is the elements of a channel that one block adds up.
// - Second launch: joins the sums of all chunks of a channel (batch norm) or group (group norm).
// - Third launch (the map): computes y or dx. It processes elements in reverse order, because the last ones are still
//   in the L2 cache.
// - Grid: one block per chunk. A channel has several chunks, so even a few channels fill the GPU. Sums are bitwise
//   reproducible. From sm_90 on, a launch may start before the preceding launch ends.
// - Bytes: x (in backward, x and dy) is read twice.
// - Numerics: see channel_sums.cuh.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/norm/channel_sums.cuh"

namespace minidnn {

constexpr int kWarps = kChannelThreads / 32;

// Adds kUnroll vectors of a channel (NCHW) to `total`: the vectors number i, i + kChannelThreads, i + 2 *
// kChannelThreads, and so on.
template <class T, int kVec, int kUnroll>
__device__ __forceinline__ void add_items(const PlaneTile<T, kVec>& tile, const BatchNormArgs& a, uint32_t i,
                                          float first, Moments<float>& total) {
  Vec<T, kVec> x[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) x[u] = Vec<T, kVec>::load(typed<T>(a.x) + tile.offset(i + u * kChannelThreads));
  add_vectors<T, kVec, kUnroll>(total, x, kUnroll, first);
}
template <class T, int kVec, int kUnroll>
__device__ __forceinline__ void add_items(const PlaneTile<T, kVec>& tile, const BatchNormArgs& a, uint32_t i,
                                          float mean, Gradients<float>& total) {
  Vec<T, kVec> x[kUnroll], dy[kUnroll], y[kUnroll];
  int64_t at[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    at[u] = tile.offset(i + u * kChannelThreads);
    x[u] = Vec<T, kVec>::load(typed<T>(a.x) + at[u]);
    dy[u] = Vec<T, kVec>::load(typed<T>(a.dy) + at[u]);
  }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) y[u] = Vec<T, kVec>::load(typed<T>(a.other) + at[u]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) keep_where_positive(dy[u], y[u]);
  }
  add_vectors<T, kVec, kUnroll>(total, x, dy, kUnroll, mean);
}

template <class T, int kVec, bool kBackward>
__global__ void __launch_bounds__(kChannelThreads)
    norm_planes_sums(const __grid_constant__ ChannelTiling s, BatchNormArgs a, float4* partials) {
  constexpr int kUnroll = kVec == 1 ? 8 : 4;
  const PlaneTile<T, kVec> tile(s, blockIdx.x);
  const float about = kBackward ? typed<float>(a.mean)[s.by_group.quotient(uint32_t(tile.channel))]
                                : float(typed<T>(a.x)[tile.channel * s.plane]);
  typename SumsOf<kBackward>::type total{};
  uint32_t i = tile.begin + threadIdx.x;
  for (; i + (kUnroll - 1) * kChannelThreads < tile.end; i += kUnroll * kChannelThreads)
    add_items<T, kVec, kUnroll>(tile, a, i, about, total);
  // The remaining vectors are loaded 4 and 2 at a time, so that several loads are in flight. Small planes (NCHW)
  // consist mostly of such vectors.
  if constexpr (kVec == 1) {
    for (; i + 3 * kChannelThreads < tile.end; i += 4 * kChannelThreads)
      add_items<T, kVec, 4>(tile, a, i, about, total);
    for (; i + kChannelThreads < tile.end; i += 2 * kChannelThreads) add_items<T, kVec, 2>(tile, a, i, about, total);
  }
  for (; i < tile.end; i += kChannelThreads) add_items<T, kVec, 1>(tile, a, i, about, total);
  griddep_launch_dependents();
  __shared__ typename SumsOf<kBackward>::type of_warp[kWarps];
  total.join_warp();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll 1
  for (int w = 1; w < kWarps; ++w) total.join(of_warp[w]);
  partials[int64_t(tile.chunk) * s.channels + tile.channel] = partial_of(total, about);
}

// Adds kUnroll rows of a thread to its sums, beginning with row i. If kWhole is false, only rows before tile.end are
// added.
template <class T, int kVec, int kUnroll, bool kWhole>
__device__ __forceinline__ void add_rows(const ColumnTile<kVec>& tile, const BatchNormArgs& a, uint32_t i,
                                         ColumnAdds<kVec>& adds) {
  Vec<T, kVec> x[kUnroll];
  uint32_t have = 0;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (kWhole || i + u * tile.s.rows < tile.end) {
      x[u] = Vec<T, kVec>::load(typed<T>(a.x) + tile.offset(i + u * tile.s.rows));
      ++have;
    }
  adds.add(x, have);
}
template <class T, int kVec, int kUnroll, bool kWhole>
__device__ __forceinline__ void add_rows(const ColumnTile<kVec>& tile, const BatchNormArgs& a, uint32_t i,
                                         ColumnGradientAdds<kVec>& adds) {
  Vec<T, kVec> x[kUnroll], dy[kUnroll], y[kUnroll];
  uint32_t have = 0;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (kWhole || i + u * tile.s.rows < tile.end) {
      x[u] = Vec<T, kVec>::load(typed<T>(a.x) + tile.offset(i + u * tile.s.rows));
      dy[u] = Vec<T, kVec>::load(typed<T>(a.dy) + tile.offset(i + u * tile.s.rows));
      ++have;
    }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (u < have) y[u] = Vec<T, kVec>::load(typed<T>(a.other) + tile.offset(i + u * tile.s.rows));
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (u < have) keep_where_positive(dy[u], y[u]);
  }
  adds.add(x, dy, have);
}

template <class T, int kVec, bool kBackward>
__global__ void __launch_bounds__(kChannelThreads)
    norm_columns_sums(const __grid_constant__ ChannelTiling s, BatchNormArgs a, float4* partials) {
  using Adds = typename ColumnAddsOf<kVec, kBackward>::type;
  using Sums = typename Adds::Joined;
  constexpr int kUnroll = kBackward ? kRowsInFlight / 2 : kRowsInFlight;
  const ColumnTile<kVec> tile(s, blockIdx.x);
  Adds adds{};
  if constexpr (kBackward) {
    if (!tile.idle) {
#pragma unroll
      for (int k = 0; k < kVec; ++k)
        adds.mean[k] = typed<float>(a.mean)[s.by_group.quotient(uint32_t(tile.of_all() + k))];
    }
  }
  uint32_t i = tile.begin + tile.row;
  for (; i + (kUnroll - 1) * s.rows < tile.end; i += kUnroll * s.rows)
    add_rows<T, kVec, kUnroll, true>(tile, a, i, adds);
  if (i < tile.end) add_rows<T, kVec, kUnroll, false>(tile, a, i, adds);
  griddep_launch_dependents();
  __shared__ float shifts[32 * kVec];
  float shift[kVec]{};
  Sums total = adds.relative_to_block(tile, shifts, shift);
  __shared__ Sums left[kChannelThreads / 2];
  join_rows(total, left, s.rows, s.width, tile.row, threadIdx.x - tile.row * s.width);
  if (tile.row != 0 || tile.idle) return;
#pragma unroll
  for (int k = 0; k < kVec; ++k)
    partials[int64_t(tile.chunk) * s.samples * s.channels + tile.of_all() + k] = total.partial(k, shift[k]);
}

// Joins the partial results of each channel, one per chunk of its elements. NHWC tensors have about a thousand chunks
// per channel, so a block has only kFinishChannels channels. Its threads form kFinishRows rows, and each row adds up
// every kFinishRows-th chunk.
template <bool kBackward>
__global__ void __launch_bounds__(kFinishThreads)
    norm_finish(const __grid_constant__ ChannelTiling s, BatchNormArgs a, const float4* partials) {
  griddep_launch_dependents();
  griddep_wait();
  using Sums = typename FinishOf<kBackward>::type;
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
  write_statistic<kBackward>(s, a, channel, statistic_of(s, a, channel, about, total));
}

// Group norm: a warp joins the partial results of a group and writes the coefficients of its channels. In backward, it
// also writes the terms of dscale and dbias of this sample, which parameter_sums.cu adds up over the samples.
template <bool kBackward>
__global__ void __launch_bounds__(kChannelThreads)
    norm_groups_finish(const __grid_constant__ ChannelTiling s, BatchNormArgs a, const float4* partials,
                       float2* sample_sums, ChannelCoefficients* lines) {
  griddep_launch_dependents();
  griddep_wait();
  const int64_t group = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32, all = s.samples * s.channels;
  const int of_group = int(s.by_group.divisor), lane = threadIdx.x % 32;
  const int64_t first = group * of_group;
  if (first >= all) return;
  const double n = double(s.members);
  // `first` is the index of a channel over all samples, and `parameter` is its index within a sample.
  const int64_t parameter = first % s.parameters;
  const float* scale = typed<float>(a.scale);
  if constexpr (!kBackward) {
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
    Gradients<double> total{};  // total.dy is the sum of dy scale, and total.product is the sum of dy scale x_hat.
#pragma unroll 1
    for (int c = lane; c < of_group; c += 32) {
      Gradients<double> sums{};
#pragma unroll 4
      for (int64_t i = 0; i < s.chunks; ++i) {
        const float4 v = partials[i * all + first + c];
        sums.join({double(v.x), double(v.y)});
      }
      const double one = scale ? double(scale[parameter + c]) : 1.0, product = sums.product * double(inv_std);
      sample_sums[first + c] = {float(product), float(sums.dy)};
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

// Returns the coefficients of channel c: from `lines`, which norm_groups_finish wrote, or computed here if `lines` is
// null.
template <bool kBackward>
__device__ __forceinline__ ChannelCoefficients line_of(const ChannelTiling& s, const BatchNormArgs& a,
                                                       const ChannelCoefficients* lines, int64_t c) {
  if (lines) return lines[c];
  if constexpr (kBackward) return line_of<true>(s, a, c, typed<float>(a.dbias)[c], typed<float>(a.dscale)[c]);
  const float inv_std = a.var ? norm::inverse_std(typed<float>(a.var)[c], a.eps) : typed<float>(a.inv_std)[c];
  return line_of<false>(s, a, c, typed<float>(a.mean)[c], inv_std);
}

// Computes y or dx for kUnroll vectors: the vectors number i, i + step, i + 2 * step, and so on.
template <class T, int kVec, int kUnroll, bool kBackward, int kCoefficients, class Tile>
__device__ __forceinline__ void map_vectors(const Tile& tile, const BatchNormArgs& a, uint32_t i, uint32_t step,
                                            const ChannelCoefficients (&lines)[kCoefficients]) {
  Vec<T, kVec> x[kUnroll], dy[kUnroll], other[kUnroll];
  int64_t at[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    at[u] = tile.offset(i + u * step);
    x[u] = Vec<T, kVec>::load(typed<T>(a.x) + at[u]);
    if constexpr (kBackward) dy[u] = Vec<T, kVec>::load(typed<T>(a.dy) + at[u]);
  }
  if (a.other) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) other[u] = Vec<T, kVec>::load(typed<T>(a.other) + at[u]);
    if constexpr (kBackward) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) keep_where_positive(dy[u], other[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) map_vector<T, kVec, kBackward>(a, at[u], x[u], dy[u], other[u], lines);
}

// Computes y or dx for the vectors or rows of a thread in reverse order, kUnroll at a time, beginning with the
// remainder. `first` is the lowest index.
template <class T, int kVec, bool kBackward, int kCoefficients, class Tile>
__device__ __forceinline__ void map_backwards(const Tile& tile, const BatchNormArgs& a, uint32_t first, uint32_t step,
                                              const ChannelCoefficients (&lines)[kCoefficients]) {
  constexpr int kUnroll = kVec == 1 ? 8 : 4;
  uint32_t whole = (tile.end - tile.begin) / (kUnroll * step), i = first + whole * (kUnroll * step);
  // The remaining vectors are loaded 4 and 2 at a time. Small planes (NCHW) consist mostly of them.
  if constexpr (kVec == 1) {
    for (; i + 3 * step < tile.end; i += 4 * step) map_vectors<T, kVec, 4, kBackward>(tile, a, i, step, lines);
    for (; i + step < tile.end; i += 2 * step) map_vectors<T, kVec, 2, kBackward>(tile, a, i, step, lines);
  }
  for (; i < tile.end; i += step) map_vectors<T, kVec, 1, kBackward>(tile, a, i, step, lines);
  while (whole > 0) map_vectors<T, kVec, kUnroll, kBackward>(tile, a, first + --whole * (kUnroll * step), step, lines);
}

template <class T, int kVec, bool kBackward>
__global__ void __launch_bounds__(kChannelThreads)
    norm_planes_map(const __grid_constant__ ChannelTiling s, BatchNormArgs a, const ChannelCoefficients* given) {
  const PlaneTile<T, kVec> tile(s, gridDim.x - 1 - blockIdx.x);
  griddep_wait();
  const ChannelCoefficients lines[1] = {line_of<kBackward>(s, a, given, tile.channel)};
  map_backwards<T, kVec, kBackward>(tile, a, tile.begin + threadIdx.x, kChannelThreads, lines);
}

template <class T, int kVec, bool kBackward>
__global__ void __launch_bounds__(kChannelThreads)
    norm_columns_map(const __grid_constant__ ChannelTiling s, BatchNormArgs a, const ChannelCoefficients* given) {
  const ColumnTile<kVec> tile(s, gridDim.x - 1 - blockIdx.x);
  griddep_wait();
  if (tile.idle) return;
  ChannelCoefficients lines[kVec];
  // If a group has at least kVec channels, a vector contains channels of at most two groups.
  if (kVec > 1 && !given && s.by_group.divisor >= kVec) {
    const uint32_t from = uint32_t(tile.channel), first = s.by_group.quotient(from);
    const uint32_t last = s.by_group.quotient(from + kVec - 1);
    lines[0] = line_of<kBackward>(s, a, nullptr, first);
    const ChannelCoefficients other = line_of<kBackward>(s, a, nullptr, last);
#pragma unroll
    for (int k = 1; k < kVec; ++k) lines[k] = s.by_group.quotient(from + k) == first ? lines[0] : other;
  } else {
#pragma unroll
    for (int k = 0; k < kVec; ++k)
      lines[k] =
          line_of<kBackward>(s, a, given, given ? tile.of_all() + k : s.by_group.quotient(uint32_t(tile.channel + k)));
  }
  map_backwards<T, kVec, kBackward>(tile, a, tile.begin + tile.row, s.rows, lines);
}

}  // namespace minidnn
