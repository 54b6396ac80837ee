// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group, plane by plane, which suits NCHW: y and dx.
// Method: a block keeps tiles of a few planes in shared memory, as float and with zeros for the padding, so the inner
// loops need no checks of alignment or borders. There are two buffers: the next tile is loaded while one is computed.
// A thread computes 4 columns x 4 rows of one filter or of three, or 4 columns x 2 rows of 4 or 8 filters.
// Grid: bundles of filters x walkers over the tiles. Block: up to 256 threads (dw: threads_of_dw).
// Shared memory (dynamic): the weights of the block and two buffers of `buffer` floats. Numerics: sums in float32.
//   depthwise, kFilters = 1: bound by memory; 3x3 in float32 issues instructions for half of the memory time
//   few channels, kFilters = 8: bound by products; 3 -> 64 channels, 3x3: 192 products for 10 loads from shared memory
//   dx of an image, kFilters = 3, 3x3: each loaded row serves three rows of out; 432 products for 21 loads
#include "cuda/conv/depthwise/nchw/nchw_tile.cuh"

namespace minidnn {

// Floats from row to row of the window in shared memory, where w is stored as [unit][channel][depth of the window][row]
// [column][filter]. Each row is padded to a multiple of four floats. kS is the number of columns of the window that a
// thread keeps in registers; kS = 0 stands for one column at a time, with any hop.
template <int kFilters, int kS> __device__ __forceinline__ int32_t weight_pitch(const GroupConv& p) {
  return (kS ? kS * kFilters + 3 : p.width.taps * kFilters + 3) / 4 * 4;
}

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

// y or dx. `vectors` says which four neighbours of out can be stored as one vector.
template <class T, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(kMaxThreads, kFilters == 1 ? 4 : 2)
    conv_nchw(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
              const __grid_constant__ NchwBlock b, const T* in, const T* w, const T* bias, const void* residual,
              void* out, float alpha, int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kRows = kRowsOfThread<kFilters>, kOutputs = kRows * 4;
  float* const weights = reinterpret_cast<float*>(shared);
  uint32_t walker = blockIdx.x;
  const int32_t first_unit = tiles.bundles.divmod(walker) * b.units;
  const int32_t first_group = b.units_of_group.quotient(first_unit);
  load_weights<T, kFilters, kS>(p, b, first_unit, w, weights);

  uint32_t rest = threadIdx.x;
  const int32_t column = b.quads.divmod(rest) * 4, row = b.strips.divmod(rest) * kRows;  // in the tile
  const int32_t unit = rest;
  uint32_t group = first_unit + unit;
  const int32_t first_out = b.units_of_group.divmod(group) * kFilters;
  const bool active = unit < b.units && int32_t(group) < p.groups;
  const int32_t first_filter = int32_t(group) * p.out_channels + first_out;
  const auto place = [&](const GroupConvStrides& s) {
    return first_filter * s.channel + row * p.height.spread * int64_t(s.row) +
           column * p.width.spread * int64_t(s.column);
  };
  const int64_t out_place = place(p.out);

  const PlaneLoader<T, kHop == 2> loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.half};
  float* const buffers = weights + b.weights;
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep {
    if (s.channel + b.chunk < p.in_channels) return {s.position, s.z, s.channel + b.chunk};
    if (s.z + 1 < p.depth.taps) return {s.position, s.z + 1, 0};
    return {s.position + tiles.walkers, 0, 0};
  };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.position);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    const T* from = in + tile.image * p.in.image + depth * p.in.depth +
                    (int64_t(first_group) * p.in_channels + s.channel) * p.in.channel;
    loader.load(
        buffers + buffer * b.buffer, b.groups * b.chunk,
        [&](int32_t plane) -> const T* {
          uint32_t g = plane;
          const int32_t c = b.chunk_digit.divmod(g);
          const bool exists = first_group + int32_t(g) < p.groups && s.channel + c < p.in_channels;
          return exists ? from + int32_t(g * p.in_channels + c) * p.in.channel : nullptr;
        },
        p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column);
    return true;
  };

  float sums[kFilters][kRows][4] = {};
  const auto compute = [&](const GroupConvStep& step, int buffer) {
    if (!active) return;
    const int32_t pitch = weight_pitch<kFilters, kS>(p), down = p.height.hop * b.pitch;
    const int32_t channels = min_of(b.chunk, p.in_channels - step.channel);
    const float* x = buffers + buffer * b.buffer + (int32_t(group) - first_group) * b.chunk * b.plane + row * down +
                     column * (kHop ? 1 : p.width.hop);  // kHop = 2: the even columns are neighbours
    const float* taps =
        weights + ((unit * p.in_channels + step.channel) * p.depth.taps + step.z) * p.height.taps * pitch;
#pragma unroll 1
    for (int32_t c = 0; c < channels; ++c) {
      const float* line = x + c * b.plane;
      const float* window = taps + c * p.depth.taps * p.height.taps * pitch;
      if constexpr (kFilters == 3) {  // here height.taps is kS and height.hop is 1
        float weight[kS][kS * kFilters];
#pragma unroll
        for (int r = 0; r < kS; ++r) read_row(weight[r], window + r * pitch);
#pragma unroll
        for (int at = 0; at < kRows + kS - 1; ++at) {
          float v[3 + kS];
          read_row(v, line + at * b.pitch);
#pragma unroll
          for (int t = 0; t < kRows; ++t) {
            if (at < t || at >= t + kS) continue;
#pragma unroll
            for (int s = 0; s < kS; ++s)
#pragma unroll
              for (int f = 0; f < kFilters; ++f)
#pragma unroll
                for (int u = 0; u < 4; ++u) sums[f][t][u] += weight[at - t][s * kFilters + f] * v[u + s];
          }
        }
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
  const auto finish = [&](const GroupConvStep& step) {
    if (!active) return;
    const GroupConvTile tile(p, tiles, step.position);
    const int32_t rows = ceil_div(p.height.out - (tile.row + row * p.height.spread), p.height.spread);
    const int32_t columns = ceil_div(p.width.out - (tile.column + column * p.width.spread), p.width.spread);
    const int32_t filters = min_of(kFilters, p.out_channels - first_out);
    float v[kFilters * kOutputs];
#pragma unroll
    for (int i = 0; i < kFilters * kOutputs; ++i) {
      float& sum = sums[i / kOutputs][i / 4 % kRows][i % 4];
      v[i] = sum;
      sum = 0;
    }
    if (p.has_bias) add_bias<kFilters>(p, bias, first_filter, filters, v);
    finish_sums(p, v, alpha, [&](int i, float(&four)[4]) {
      const int f = i / kRows, t = i % kRows;
      const int64_t at = tile.offset(p.residual) + place(p.residual) + f * p.residual.channel +
                         t * p.height.spread * int64_t(p.residual.row);
#pragma unroll
      for (int u = 0; u < 4; ++u)
        if (f < filters && t < rows && u < columns)
          four[u] += load_residual<T>(p, residual, at + u * p.width.spread * int64_t(p.residual.column));
    });
    const int64_t start = tile.offset(p.out) + out_place;
    const int64_t down = p.height.spread * int64_t(p.out.row), across = p.width.spread * int64_t(p.out.column);
    if (kFilters > 1 && vectors == kVectorsOfFilters && filters == kFilters) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i)
#pragma unroll
        for (int f = 0; f + 4 <= kFilters; f += 4)
          if (i / 4 < rows && i % 4 < columns) {
            const float* four = v + f * kOutputs + i;
            store_quad<T>(p, out, start + i / 4 * down + i % 4 * across + f,
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
            store_quad<T>(p, out, at, {four[0], four[1], four[2], four[3]});
          } else {
#pragma unroll
            for (int u = 0; u < 4; ++u)
              if (u < columns) store<T>(p, out, at + u * across, four[u]);
          }
        }
      }
    }
  };
  for_each_step({walker, 0, 0}, tiles.count, next, load, compute, finish);
}

}  // namespace minidnn
