// SPDX-License-Identifier: Apache-2.0
// dw of convolutions with few channels in a group, plane by plane, which suits NCHW.
// Method: that of nchw.cu. A block keeps tiles of planes of x and of dy in two buffers of shared memory, as float and
// with zeros for the padding.
// Grid: bundles of filters, channels and rows of the window x walkers over the tiles. Block: up to threads_of_dw
// threads. Shared memory (dynamic): two buffers of `buffer` floats. Bytes: reads x and dy about once, and writes a
// partial sum of dw for each walker. Numerics: sums in float32, in a fixed order.
#include "cuda/conv/depthwise/nchw/nchw_tile.cuh"

namespace minidnn {

// Loads the tile of `planes` planes of dy that starts at `from`. dy has `rows` and `columns` left there; zeros follow.
// kVectorsOfColumns: a thread copies four columns of a row at a time. kVectorsOfFilters: a warp copies 8 filters x 4
// columns, one element per thread.
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
    // The 8 filters of a column are 32 bytes where filters are neighbours in memory. Bank conflicts are 2-way.
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

// Adds the products of four columns of dy with the elements of x that their windows read.
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
  // The smaller operand is kept in registers, the other one is read piecewise.
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

// Partial sums of dw, parts[walker of the tiles][filter][channel][window], which filter_reduce.cu adds. A thread sums
// kS columns of one row of the window for kFilters filters x kChannels channels; kS = 0: one column, with any hop. `in`
// is x, `gradient` is dy. Filters and channels past the last one multiply whatever shared memory contains; their sums
// are separate and never stored.
template <class T, int kChannels, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(threads_of_dw(kFilters), kFilters > 1     ? 1
                                                           : kChannels == 1 ? 4
                                                                            : 3)
    conv_nchw_filter(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
                     const __grid_constant__ NchwBlock b, const T* in, const T* gradient, float* parts,
                     int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kColumns = kS ? kS : 1, kSums = kFilters * kChannels * kColumns;
  constexpr int kLanes = kFilters > 1 ? kFilterLanes : 1;
  const int32_t jobs = kS ? p.height.taps : p.height.taps * p.width.taps, filters = p.groups * p.out_channels;
  uint32_t slab = blockIdx.x;
  uint32_t bundle = tiles.bundles.divmod(slab);  // digits: filters, channels, depth of the window, jobs
  const int32_t filter_bundles = ceil_div(filters, b.units * kFilters);
  const int32_t first_filter = int32_t(bundle % filter_bundles) * b.units * kFilters;
  bundle /= filter_bundles;
  const int32_t first_channel = int32_t(bundle % b.channel_blocks) * kChannels;
  bundle /= b.channel_blocks;
  const int32_t z = int32_t(bundle % p.depth.taps), first_job = int32_t(bundle / p.depth.taps) * b.jobs.divisor;
  const int32_t first_group = kFilters > 1 ? 0 : b.units_of_group.quotient(first_filter);

  uint32_t rest = threadIdx.x / kLanes;
  const int32_t lane = threadIdx.x % kLanes;
  const int32_t walker = b.walkers.divmod(rest), job = first_job + b.jobs.divmod(rest);
  // The thread's filters are planes plane, plane + kLanes, ... of the bundle.
  const int32_t plane = int32_t(rest) * kFilters * kLanes + lane;
  const int32_t filter = first_filter + plane, group = kFilters > 1 ? 0 : b.units_of_group.quotient(filter);
  const bool active = int32_t(rest) * kLanes < b.units && filter < filters && job < jobs;
  const int32_t r = kS ? job : job / p.width.taps, s = kS ? 0 : job % p.width.taps;
  const int32_t channels = min_of(kChannels, p.in_channels - first_channel);
  const int32_t planes = min_of(b.units * kFilters, filters - first_filter);

  const PlaneLoader<T, kHop == 2> x_loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.half};
  const PlaneLoader<T, false> dy_loader{p.height.tile, p.width.tile, b.out_pitch, b.out_plane, 0};
  float* const buffers = reinterpret_cast<float*>(shared);
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep { return {s.position + tiles.walkers, s.z, 0}; };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.position);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    float* const to = buffers + buffer * b.buffer;
    const T* x = in + tile.image * p.in.image + depth * p.in.depth +
                 (int64_t(first_group) * p.in_channels + first_channel) * p.in.channel;
    x_loader.load(
        to, b.groups * kChannels,
        [&](int32_t plane) -> const T* {
          const int32_t g = plane / kChannels, c = plane % kChannels;
          const bool exists = first_group + g < p.groups && c < channels;
          return exists ? x + (g * p.in_channels + c) * p.in.channel : nullptr;
        },
        p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column);
    float* const dy_to = to + b.groups * kChannels * b.plane;
    const T* dy = gradient + tile.image * p.out.image + tile.depth * p.out.depth + first_filter * p.out.channel;
    if (kFilters > 1 || (sizeof(T) == 4 && vectors != kNoVectors)) {
      if constexpr (sizeof(T) == 4)
        load_gradient(p, b, dy_to, dy + (tile.row * int64_t(p.out.row) + tile.column * int64_t(p.out.column)), planes,
                      p.height.out - tile.row, p.width.out - tile.column, vectors);
    } else {
      dy_loader.load(
          dy_to, planes, [&](int32_t plane) -> const T* { return dy + plane * p.out.channel; },
          p.height.out_line(tile.row), p.width.out_line(tile.column), p.out.row, p.out.column);
    }
    return true;
  };

  float sums[kFilters][kChannels][kColumns] = {};
  const auto compute = [&](const GroupConvStep&, int buffer) {
    if (!active) return;
    const float* x = buffers + buffer * b.buffer + (group - first_group) * kChannels * b.plane + r * b.pitch + s;
    const float* dy = buffers + buffer * b.buffer + b.groups * kChannels * b.plane + plane * b.out_plane;
    const int32_t hop = kHop ? 1 : p.width.hop;  // kHop = 2: the even columns are neighbours
#pragma unroll 1
    for (uint32_t i = walker; i < b.positions.divisor; i += b.walkers.divisor) {
      uint32_t row = i;
      const int32_t column = b.quads.divmod(row) * 4;
      const float* gradients = dy + row * b.out_pitch + column;
      const float* line = x + row * p.height.hop * b.pitch + column * hop;
      accumulate_filter<kS, kHop>(b, line, gradients, hop, sums);
    }
  };
  for_each_step({slab, z, 0}, tiles.count, next, load, compute, [](const GroupConvStep&) {});
  griddep_launch_dependents();

  // The walkers of a sum are kLanes threads apart, and their number is a power of two. Shuffles add those of a warp;
  // walker 0 then adds the sums of the warps from shared memory.
  const int32_t in_warp = min_of<int32_t>(b.walkers.divisor, 32 / kLanes), warps = b.walkers.divisor / in_warp;
  const int32_t place = int32_t(threadIdx.x) / (in_warp * kLanes) * kLanes + lane;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    float& sum = sums[i / (kChannels * kColumns)][i / kColumns % kChannels][i % kColumns];
    for (int apart = in_warp / 2; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffff, sum, apart * kLanes, 32);
    if (walker % in_warp == 0) buffers[place * kSums + i] = sum;
  }
  __syncthreads();
  if (!active || walker != 0) return;
  const float* const mine = buffers + place * kSums;
  for (int f = 0; f < kFilters && filter + f * kLanes < filters; ++f)
    for (int c = 0; c < channels; ++c)
      for (int k = 0; k < kColumns; ++k) {
        float sum = 0;
        for (int i = 0; i < warps; ++i) sum += mine[i * kLanes * kSums + (f * kChannels + c) * kColumns + k];
        const int64_t weight = (int64_t(slab) * filters + filter + f * kLanes) * p.in_channels + first_channel + c;
        parts[((weight * p.depth.taps + z) * p.height.taps + r) * p.width.taps + s + k] = sum;
      }
}

}  // namespace minidnn
