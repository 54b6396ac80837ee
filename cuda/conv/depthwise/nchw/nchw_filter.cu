// SPDX-License-Identifier: Apache-2.0
// Computes partial sums of dw, for convolutions with few channels in a group. It reads planes (NCHW).
// Method: as in nchw.cu, a block copies tiles of x and of dy to two buffers in shared memory. The elements are float,
// and zeros stand for the padding.
// Grid: one block for each channel tile (some filters, channels and rows of the window) and each split (some tiles);
// see GroupConvTiles. Block: at most threads_of_dw() threads. Shared memory (dynamic): two buffers of `buffer` floats.
// Bytes: reads x and dy about once, and writes a partial sum of dw for each split of the tiles. Numerics: sums in
// float32, in a fixed order.
#include "cuda/conv/depthwise/nchw/nchw_tile.cuh"
#include "cuda/device/reduce.cuh"

namespace minidnn {

// Copies a tile of `planes` planes of dy to shared memory. Elements beyond `rows` and `columns` become zeros. With
// kVectorsOfColumns, a thread copies four columns at a time. With kVectorsOfFilters, a warp copies 8 filters x 4
// columns.
__device__ __forceinline__ void load_gradient(const GroupConv& p, const NchwBlock& b, float* to, const float* from,
                                              int32_t planes, int32_t rows, int32_t columns, int32_t vectors) {
  if (vectors == kVectorsOfColumns) {
    const int32_t at_once = max_of<int32_t>(b.positions.quotient(blockDim.x), 1);
    uint32_t rest = threadIdx.x;
    const int32_t first = b.positions.divmod(rest), plane = rest;
    if (plane >= at_once) return;
    for (uint32_t i = first; i < b.positions.divisor; i += blockDim.x) {
      uint32_t row = i;
      const int32_t column = b.quads.divmod(row) * 4;
      const bool exists = int32_t(row) < rows && column < columns;
      const float* source = from + plane * p.out.channel + int32_t(row) * p.out.row + column;
      uint32_t shared = cvta_to_shared(to + plane * b.out_plane + row * b.out_pitch + column);
#pragma unroll 4
      for (int32_t at = plane; at < planes; at += at_once) {
        cp_async<16>(shared, source, exists);
        source += at_once * p.out.channel;
        shared += at_once * b.out_plane * 4;
      }
    }
  } else {
    // In NHWC, a warp loads whole 32-byte sectors (8 filters). Its stores to shared memory have 2-way bank conflicts.
    const int32_t plane = threadIdx.x % 8, further = threadIdx.x / 8 % 4;
    for (uint32_t i = threadIdx.x / 32; i < b.positions.divisor; i += blockDim.x / 32) {
      uint32_t row = i;
      const int32_t column = b.quads.divmod(row) * 4 + further;
      const int32_t down = int32_t(row) * p.height.spread, across = column * p.width.spread;
      const bool exists = down < rows && across < columns;
      const float* source = from + plane * p.out.channel + down * p.out.row + across * p.out.column;
      uint32_t shared = cvta_to_shared(to + plane * b.out_plane + row * b.out_pitch + column);
#pragma unroll 4
      for (int32_t at = plane; at < planes; at += 8) {
        cp_async<4>(shared, source, exists);
        source += 8 * p.out.channel;
        shared += 8 * b.out_plane * 4;
      }
    }
  }
}

// Adds the products of four columns of dy and the elements of x in their windows.
template <int kS, int kHop, int kFilters, int kChannels, int kColumns>
__device__ __forceinline__ void accumulate_filter(const NchwBlock& b, const float* line, const float* gradients,
                                                  int32_t hop, float (&sums)[kFilters][kChannels][kColumns]) {
  constexpr int kReach = kS ? 3 * kHop + kS : 4, kLanes = kFilters > 1 ? kFilterLanes : 1;
  const auto read_x = [&](float(&v)[kReach], int c) {
    if constexpr (kS > 0) {
      read_reach<kS, kHop>(v, line + c * b.plane, b.half);
    } else {
#pragma unroll
      for (int u = 0; u < 4; ++u) v[u] = line[c * b.plane + u * hop];
    }
  };
  const auto add = [&](int f, int c, const float(&g)[4], const float(&v)[kReach]) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
#pragma unroll
      for (int u = 0; u < 4; ++u) sums[f][c][k] += g[u] * v[kS ? u * kHop + k : u];
  };
  // To save registers, the smaller operand is kept in registers as a whole, and the larger operand is read in parts.
  if constexpr (kChannels * kReach > kFilters * 4) {
    float g[kFilters][4];
#pragma unroll
    for (int f = 0; f < kFilters; ++f) read_row(g[f], gradients + f * kLanes * b.out_plane);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      float v[kReach];
      read_x(v, c);
#pragma unroll
      for (int f = 0; f < kFilters; ++f) add(f, c, g[f], v);
    }
  } else {
    float v[kChannels][kReach];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) read_x(v[c], c);
#pragma unroll
    for (int f = 0; f < kFilters; ++f) {
      float g[4];
      read_row(g, gradients + f * kLanes * b.out_plane);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) add(f, c, g, v[c]);
    }
  }
}

// The elements of dw that a thread sums: filters `filter`, filter + kLanes, filter + 2 kLanes ...; `channels` channels
// from first_channel on; the window's depth z, row r, and columns from s on.
struct NchwFilterThread {
  int32_t filter, first_channel, channels, z, r, s;
  int32_t lane, filters;
  uint32_t tile_split;  // the block's split of the tiles (GroupConvTiles)
  // the thread's first position (four columns of a row) in each tile
  int32_t position_split;
  bool active;  // false if the thread has no element of dw
};

// Adds the sums of all threads that have the same elements of dw, and stores the result as a partial sum. These threads
// are kLanes apart. Shuffles add up a warp; then the sums of warps are added through shared memory.
template <int kFilters, int kChannels, int kColumns>
__device__ __forceinline__ void store_partial_sums(const GroupConv& p, const NchwBlock& b,
                                                   const NchwFilterThread& thread, float* shared,
                                                   float (&sums)[kFilters][kChannels][kColumns], float* partial_sums) {
  constexpr int kSums = kFilters * kChannels * kColumns, kLanes = kFilters > 1 ? kFilterLanes : 1;
  const int32_t filters = thread.filters;
  const int32_t in_warp = min_of<int32_t>(b.position_splits.divisor, 32 / kLanes);
  const int32_t warps = b.position_splits.divisor / in_warp;
  const int32_t slot = int32_t(threadIdx.x) / (in_warp * kLanes) * kLanes + thread.lane;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const float sum = warp_reduce_down(
        sums[i / (kChannels * kColumns)][i / kColumns % kChannels][i % kColumns], in_warp,
        [](float x, float y) { return x + y; }, [](float v, int offset) { return shuffle_down(v, offset * kLanes); });
    if (thread.position_split % in_warp == 0) shared[slot * kSums + i] = sum;
  }
  __syncthreads();
  if (!thread.active || thread.position_split != 0) return;
  const float* const of_thread = shared + slot * kSums;
  for (int f = 0; f < kFilters && thread.filter + f * kLanes < filters; ++f)
    for (int c = 0; c < thread.channels; ++c)
      for (int k = 0; k < kColumns; ++k) {
        float sum = 0;
        for (int i = 0; i < warps; ++i) sum += of_thread[i * kLanes * kSums + (f * kChannels + c) * kColumns + k];
        const int64_t weight = (int64_t(thread.tile_split) * filters + thread.filter + f * kLanes) * p.in_channels +
                               thread.first_channel + c;
        partial_sums[((weight * p.depth.taps + thread.z) * p.height.taps + thread.r) * p.width.taps + thread.s + k] =
            sum;
      }
}

// Computes partial sums of dw, stored as [split][filter][channel][window]; filter_reduce.cu adds them. A thread sums
// kFilters filters x kChannels channels x kS columns (kS = 0: one column, any stride) of one row of the window. Sums of
// filters or channels past the last one are garbage and are not stored.
template <class T, int kChannels, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(threads_of_dw(kFilters), kFilters > 1     ? 1
                                                           : kChannels == 1 ? 4
                                                                            : 3)
    conv_nchw_filter(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
                     const __grid_constant__ NchwBlock b, const T* in, const T* gradient, float* partial_sums,
                     int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kColumns = kS ? kS : 1;
  constexpr int kLanes = kFilters > 1 ? kFilterLanes : 1;
  const int32_t jobs = kS ? p.height.taps : p.height.taps * p.width.taps, filters = p.groups * p.out_channels;
  uint32_t tile_split = blockIdx.x;
  // The coordinates of the channel tile, fastest first: filters, channels, depth of the window, jobs (NchwBlock).
  uint32_t channel_tile = tiles.channel_tiles.divmod(tile_split);
  const int32_t filter_tiles = ceil_div(filters, b.units * kFilters);
  const int32_t first_filter = int32_t(channel_tile % filter_tiles) * b.units * kFilters;
  channel_tile /= filter_tiles;
  const int32_t first_channel = int32_t(channel_tile % b.channel_blocks) * kChannels;
  channel_tile /= b.channel_blocks;
  const int32_t z = int32_t(channel_tile % p.depth.taps),
                first_job = int32_t(channel_tile / p.depth.taps) * b.jobs.divisor;
  const int32_t first_group = kFilters > 1 ? 0 : b.units_of_group.quotient(first_filter);

  uint32_t rest = threadIdx.x / kLanes;
  const int32_t lane = threadIdx.x % kLanes;
  const int32_t position_split = b.position_splits.divmod(rest), job = first_job + b.jobs.divmod(rest);
  // the index of the thread's first filter in the block; its other filters follow at a distance of kLanes
  const int32_t plane = int32_t(rest) * kFilters * kLanes + lane;
  const int32_t filter = first_filter + plane, group = kFilters > 1 ? 0 : b.units_of_group.quotient(filter);
  const bool active = int32_t(rest) * kLanes < b.units && filter < filters && job < jobs;
  const int32_t r = kS ? job : job / p.width.taps, s = kS ? 0 : job % p.width.taps;
  const int32_t channels = min_of(kChannels, p.in_channels - first_channel);
  const int32_t planes = min_of(b.units * kFilters, filters - first_filter);

  const PlaneLoader<T, kHop == 2> x_loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.half};
  const PlaneLoader<T, false> dy_loader{p.height.tile, p.width.tile, b.out_pitch, b.out_plane, 0};
  float* const buffers = reinterpret_cast<float*>(shared);
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep { return {s.tile + tiles.splits, s.z, 0}; };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    float* const to = buffers + buffer * b.buffer;
    const T* x = in + tile.image * p.in.image + depth * p.in.depth +
                 (int64_t(first_group) * p.in_channels + first_channel) * p.in.channel;
    x_loader.load(to, b.groups * kChannels,
                  [&](int32_t plane) -> const T* {
                    const int32_t g = plane / kChannels, c = plane % kChannels;
                    const bool exists = first_group + g < p.groups && c < channels;
                    return exists ? x + (g * p.in_channels + c) * p.in.channel : nullptr;
                  },
                  {p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column});
    float* const dy_to = to + b.groups * kChannels * b.plane;
    const T* dy = gradient + tile.image * p.out.image + tile.depth * p.out.depth + first_filter * p.out.channel;
    if (kFilters > 1 || (sizeof(T) == 4 && vectors != kNoVectors)) {
      if constexpr (sizeof(T) == 4)
        load_gradient(p, b, dy_to, dy + (tile.row * int64_t(p.out.row) + tile.column * int64_t(p.out.column)), planes,
                      p.height.out - tile.row, p.width.out - tile.column, vectors);
    } else {
      dy_loader.load(dy_to, planes, [&](int32_t plane) -> const T* { return dy + plane * p.out.channel; },
                     {p.height.out_line(tile.row), p.width.out_line(tile.column), p.out.row, p.out.column});
    }
    return true;
  };

  float sums[kFilters][kChannels][kColumns] = {};
  const auto compute = [&](const GroupConvStep&, int buffer) {
    if (!active) return;
    const float* x = buffers + buffer * b.buffer + (group - first_group) * kChannels * b.plane + r * b.pitch + s;
    const float* dy = buffers + buffer * b.buffer + b.groups * kChannels * b.plane + plane * b.out_plane;
    // With kHop = 2 (stride 2), even columns are contiguous in shared memory, so adjacent windows start one float
    // apart.
    const int32_t hop = kHop ? 1 : p.width.hop;
#pragma unroll 1
    for (uint32_t i = position_split; i < b.positions.divisor; i += b.position_splits.divisor) {
      uint32_t row = i;
      const int32_t column = b.quads.divmod(row) * 4;
      const float* gradients = dy + row * b.out_pitch + column;
      const float* line = x + row * p.height.hop * b.pitch + column * hop;
      accumulate_filter<kS, kHop>(b, line, gradients, hop, sums);
    }
  };
  for_each_step({tile_split, z, 0}, tiles.count, next, load, compute, [](const GroupConvStep&) {});
  griddep_launch_dependents();

  store_partial_sums(p, b,
                     {filter, first_channel, channels, z, r, s, lane, filters, tile_split, position_split, active},
                     buffers, sums, partial_sums);
}

}  // namespace minidnn
