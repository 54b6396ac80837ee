// SPDX-License-Identifier: Apache-2.0
// Computes y and dx of convolutions with few channels in a group. It reads planes (one channel of one image), which
// suits NCHW.
// Method: a block copies tiles of a few planes to shared memory, as float. Zeros stand for the padding, so the inner
// loops need no checks of alignment or borders. There are two buffers: the next tile is loaded while the current one is
// computed. A thread with 1 or 3 filters computes 4 columns x 4 rows of each filter. A thread with 4 or 8 filters
// computes 4 columns x 2 rows of each filter.
// Grid: one block for each channel tile (some filters) and each split (some tiles); see GroupConvTiles. Block: up to
// 256 threads. Shared memory (dynamic): the weights of the block, and two buffers of `buffer` floats.
// Bytes: writes the output once. Elements of `in` that several tiles need are read once for each tile, mostly from L2.
// Numerics: sums in float32.
// - kFilters = 1 (depthwise) is bound by memory.
// - kFilters = 8 (few channels) is bound by multiply-adds. For each channel and each row of a 3x3 window, a thread
//   executes 192 multiply-adds and 10 loads from shared memory.
// - kFilters = 3 (dx of an image with three channels): for each channel of dy, a thread executes 432 multiply-adds and
//   21 loads from shared memory.
#include "cuda/conv/depthwise/nchw/nchw_tile.cuh"

namespace minidnn {

// The sums of a thread, stored as [filter][row][column].
template <int kFilters> using NchwSums = float[kFilters][kRowsOfThread<kFilters>][4];

// The outputs that a thread computes. They have the same place in every tile.
template <int kFilters> struct NchwThread {
  // the thread's first output, relative to the first output of the tile
  int32_t column, row;
  int32_t unit;  // the index of the unit in the block (a unit is kFilters filters of one group)
  uint32_t group;
  // the index of the thread's first filter within its group, and within w
  int32_t first_out, first_filter;
  bool active;  // false if the thread has no filters to compute

  __device__ __forceinline__ NchwThread(const GroupConv& p, const NchwBlock& b, int32_t first_unit) {
    uint32_t rest = threadIdx.x;
    column = b.quads.divmod(rest) * 4;
    row = b.strips.divmod(rest) * kRowsOfThread<kFilters>;
    unit = rest;
    group = first_unit + unit;
    first_out = b.units_of_group.divmod(group) * kFilters;
    active = unit < b.units && int32_t(group) < p.groups;
    first_filter = int32_t(group) * p.out_channels + first_out;
  }
  // the distance in elements from the tile's first output to the thread's first output
  __device__ __forceinline__ int64_t offset(const GroupConv& p, const GroupConvStrides& s) const {
    return first_filter * s.channel + row * p.height.spread * int64_t(s.row) +
           column * p.width.spread * int64_t(s.column);
  }
};

// The pitch of the rows of a window in shared memory, in floats. The layout is [unit of kFilters
// filters][channel][depth][row][column][filter], with rows padded to a multiple of four floats.
template <int kFilters, int kS> __device__ __forceinline__ int32_t weight_pitch(const GroupConv& p) {
  return (kS ? kS * kFilters + 3 : p.width.taps * kFilters + 3) / 4 * 4;
}

// Copies the weights of the block's filters to shared memory.
template <class T, int kFilters, int kS>
__device__ __forceinline__ void load_weights(const GroupConv& p, const NchwBlock& b, int32_t first_unit, const T* w,
                                             float* to) {
  const int32_t pitch = weight_pitch<kFilters, kS>(p);
  const int32_t all = b.units * kFilters * p.in_channels * p.taps();
  for (int32_t i = threadIdx.x; i < all; i += blockDim.x) {
    uint32_t rest = i;
    const int32_t s = b.window[2].divmod(rest), r = b.window[1].divmod(rest), z = b.window[0].divmod(rest);
    const int32_t c = b.in_channels.divmod(rest), filter = rest % kFilters;
    const int32_t unit = rest / kFilters;
    uint32_t group = first_unit + unit;
    const int32_t o = b.units_of_group.divmod(group) * kFilters + filter;
    float weight = 0;
    if (int32_t(group) < p.groups && o < p.out_channels)
      weight = float(w[int64_t(p.w_origin) + int32_t(group) * p.w_group + o * p.w_out + c * p.w_in + z * p.w_tap[0] +
                       r * p.w_tap[1] + s * p.w_tap[2]]);
    to[(((unit * p.in_channels + c) * p.depth.taps + z) * p.height.taps + r) * pitch + s * kFilters + filter] = weight;
  }
}

// Adds the bias to the sums. Only the first `filters` filters exist.
template <int kFilters, class T, int n>
__device__ __forceinline__ void add_bias(const GroupConv& p, const T* bias, int32_t first_filter, int32_t filters,
                                         float (&v)[n]) {
  constexpr int kOutputs = n / kFilters;
#pragma unroll
  for (int f = 0; f < kFilters; ++f) {
    if (f >= filters) break;
    const float shift = float(bias[(first_filter + f) * p.bias_stride]);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) v[f * kOutputs + i] += shift;
  }
}

// Adds the products of a kS x kS window at stride 1. Each row of `in` is read once for all rows of the window.
template <int kFilters, int kS>
__device__ __forceinline__ void add_window(NchwSums<kFilters>& sums, const float* line, int32_t pitch,
                                           const float* window, int32_t window_pitch) {
  constexpr int kRows = kRowsOfThread<kFilters>;
  float weight[kS][kS * kFilters];
#pragma unroll
  for (int r = 0; r < kS; ++r) read_row(weight[r], window + r * window_pitch);
#pragma unroll
  for (int row = 0; row < kRows + kS - 1; ++row) {
    float v[3 + kS];
    read_row(v, line + row * pitch);
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      if (row < t || row >= t + kS) continue;
#pragma unroll
      for (int s = 0; s < kS; ++s)
#pragma unroll
        for (int f = 0; f < kFilters; ++f)
#pragma unroll
          for (int u = 0; u < 4; ++u) sums[f][t][u] += weight[row - t][s * kFilters + f] * v[u + s];
    }
  }
}

// The epilogue of a tile: adds bias and residual, applies the activation, stores the outputs, and resets the sums.
template <class T, int kFilters>
__device__ __forceinline__ void finish_tile(const GroupConv& p, const GroupConvTile& tile,
                                            const NchwThread<kFilters>& thread, const GroupConvOperands<T>& a,
                                            float alpha, int32_t vectors, NchwSums<kFilters>& sums) {
  constexpr int kRows = kRowsOfThread<kFilters>, kOutputs = kRows * 4;
  const int32_t rows = ceil_div(p.height.out - (tile.row + thread.row * p.height.spread), p.height.spread);
  const int32_t columns = ceil_div(p.width.out - (tile.column + thread.column * p.width.spread), p.width.spread);
  const int32_t filters = min_of(kFilters, p.out_channels - thread.first_out);
  float v[kFilters * kOutputs];
#pragma unroll
  for (int i = 0; i < kFilters * kOutputs; ++i) {
    float& sum = sums[i / kOutputs][i / 4 % kRows][i % 4];
    v[i] = sum;
    sum = 0;
  }
  if (p.has_bias) add_bias<kFilters>(p, a.bias, thread.first_filter, filters, v);
  finish_sums(p, v, alpha, [&](int i, float(&four)[4]) {
    const int f = i / kRows, t = i % kRows;
    const int64_t at = tile.offset(p.residual) + thread.offset(p, p.residual) + f * p.residual.channel +
                       t * p.height.spread * int64_t(p.residual.row);
#pragma unroll
    for (int u = 0; u < 4; ++u)
      if (f < filters && t < rows && u < columns)
        four[u] += load_residual<T>(p, a.residual, at + u * p.width.spread * int64_t(p.residual.column));
  });
  const int64_t start = tile.offset(p.out) + thread.offset(p, p.out);
  const int64_t down = p.height.spread * int64_t(p.out.row), across = p.width.spread * int64_t(p.out.column);
  if (kFilters > 1 && vectors == kVectorsOfFilters && filters == kFilters) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i)
#pragma unroll
      for (int f = 0; f + 4 <= kFilters; f += 4)
        if (i / 4 < rows && i % 4 < columns) {
          const float* four = v + f * kOutputs + i;
          store_quad<T>(p, a.out, start + i / 4 * down + i % 4 * across + f,
                        {four[0], four[kOutputs], four[2 * kOutputs], four[3 * kOutputs]});
        }
  } else {
    int64_t filter = start;
#pragma unroll
    for (int f = 0; f < kFilters; ++f, filter += p.out.channel) {
      int64_t at = filter;
#pragma unroll
      for (int t = 0; t < kRows; ++t, at += down) {
        if (f >= filters || t >= rows) break;
        const float* four = v + f * kOutputs + t * 4;
        if (vectors == kVectorsOfColumns && columns >= 4) {
          store_quad<T>(p, a.out, at, {four[0], four[1], four[2], four[3]});
        } else {
#pragma unroll
          for (int u = 0; u < 4; ++u)
            if (u < columns) store<T>(p, a.out, at + u * across, four[u]);
        }
      }
    }
  }
}

// Computes y or dx. kS is the number of columns of the window, 0 for any. The products are not in a function of their
// own, and `a` is not a __grid_constant__: either would make the kernel with 8 filters spill more registers.
template <class T, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(kMaxThreads, kFilters == 1 ? 4 : 2)
    conv_nchw(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
              const __grid_constant__ NchwBlock b, const GroupConvOperands<T> a, float alpha, int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kRows = kRowsOfThread<kFilters>;
  float* const weights = reinterpret_cast<float*>(shared);
  float* const buffers = weights + b.weights;
  uint32_t first_tile = blockIdx.x;
  const int32_t first_unit = tiles.channel_tiles.divmod(first_tile) * b.units;
  const int32_t first_group = b.units_of_group.quotient(first_unit);
  load_weights<T, kFilters, kS>(p, b, first_unit, a.w, weights);
  const NchwThread<kFilters> thread(p, b, first_unit);

  const PlaneLoader<T, kHop == 2> loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.half};
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep {
    if (s.channel + b.chunk < p.in_channels) return {s.tile, s.z, s.channel + b.chunk};
    if (s.z + 1 < p.depth.taps) return {s.tile, s.z + 1, 0};
    return {s.tile + tiles.splits, 0, 0};
  };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    const T* from = a.in + tile.image * p.in.image + depth * p.in.depth +
                    (int64_t(first_group) * p.in_channels + s.channel) * p.in.channel;
    loader.load(buffers + buffer * b.buffer, b.groups * b.chunk,
                [&](int32_t plane) -> const T* {
                  uint32_t g = plane;
                  const int32_t c = b.chunk_digit.divmod(g);
                  const bool exists = first_group + int32_t(g) < p.groups && s.channel + c < p.in_channels;
                  return exists ? from + int32_t(g * p.in_channels + c) * p.in.channel : nullptr;
                },
                {p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column});
    return true;
  };
  NchwSums<kFilters> sums = {};
  const auto compute = [&](const GroupConvStep& step, int buffer) {
    if (!thread.active) return;
    const int32_t pitch = weight_pitch<kFilters, kS>(p), down = p.height.hop * b.pitch;
    const int32_t channels = min_of(b.chunk, p.in_channels - step.channel);
    const float* x = buffers + buffer * b.buffer + (int32_t(thread.group) - first_group) * b.chunk * b.plane +
                     thread.row * down +
                     // With kHop = 2 (stride 2), even columns are contiguous in shared memory, so adjacent windows
                     // start one float apart.
                     thread.column * (kHop ? 1 : p.width.hop);
    const float* taps =
        weights + ((thread.unit * p.in_channels + step.channel) * p.depth.taps + step.z) * p.height.taps * pitch;
#pragma unroll 1
    for (int32_t c = 0; c < channels; ++c) {
      const float* line = x + c * b.plane;
      const float* window = taps + c * p.depth.taps * p.height.taps * pitch;
      // This kernel is used for 3 x 3 windows at stride 1 only.
      if constexpr (kFilters == 3) {
        add_window<kFilters, kS>(sums, line, b.pitch, window, pitch);
        continue;
      }
#pragma unroll 1
      for (int32_t r = 0; r < p.height.taps; ++r, line += b.pitch, window += pitch) {
        if constexpr (kS > 0) {
          float weight[kS * kFilters];
          read_row(weight, window);
#pragma unroll
          for (int t = 0; t < kRows; ++t) {
            float v[3 * kHop + kS];
            read_reach<kS, kHop>(v, line + t * down, b.half);
#pragma unroll
            for (int s = 0; s < kS; ++s)
#pragma unroll
              for (int f = 0; f < kFilters; ++f)
#pragma unroll
                for (int u = 0; u < 4; ++u) sums[f][t][u] += weight[s * kFilters + f] * v[u * kHop + s];
          }
        } else {
#pragma unroll 1
          for (int32_t s = 0; s < p.width.taps; ++s) {
            float v[kRows][4];
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
              for (int u = 0; u < 4; ++u) v[t][u] = line[t * down + u * p.width.hop + s];
#pragma unroll
            for (int f = 0; f < kFilters; ++f)
#pragma unroll
              for (int t = 0; t < kRows; ++t)
#pragma unroll
                for (int u = 0; u < 4; ++u) sums[f][t][u] += window[s * kFilters + f] * v[t][u];
          }
        }
      }
    }
  };
  const auto finish = [&](const GroupConvStep& s) {
    if (thread.active) finish_tile<T>(p, GroupConvTile(p, tiles, s.tile), thread, a, alpha, vectors, sums);
  };
  for_each_step({first_tile, 0, 0}, tiles.count, next, load, compute, finish);
}

}  // namespace minidnn
