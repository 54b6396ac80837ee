// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group, plane by plane, which suits NCHW: y, dx and dw.
// Method: a block keeps tiles of a few planes in shared memory, as float and with zeros for the padding, so the inner
// loops need no checks of alignment or borders. There are two buffers: the next tile is loaded while one is computed.
// A thread computes 4 columns x 4 rows of one filter or of three, or 4 columns x 2 rows of 4 or 8 filters.
// Grid: bundles of filters x walkers over the tiles. Block: up to 256 threads (dw: threads_of_dw).
// Shared memory (dynamic): the weights of the block and two buffers of `buffer` floats. Numerics: sums in float32.
//   depthwise, kFilters = 1: bound by memory; 3x3 in float32 issues instructions for half of the memory time
//   few channels, kFilters = 8: bound by products; 3 -> 64 channels, 3x3: 192 products for 10 loads from shared memory
//   dx of an image, kFilters = 3, 3x3: each loaded row serves three rows of out; 432 products for 21 loads
#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/conv/depthwise/nchw/nchw_params.h"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

constexpr int kMaxThreads = 256;

// Reads n floats. `from` is a multiple of 16 bytes.
template <int n> __device__ __forceinline__ void read_row(float (&v)[n], const float* from) {
#pragma unroll
  for (int i = 0; i + 4 <= n; i += 4) read_quad(reinterpret_cast<float(&)[4]>(v[i]), from + i);
  constexpr int kDone = n / 4 * 4;
  if constexpr (n % 4 >= 2) {
    const float2 two = *reinterpret_cast<const float2*>(from + kDone);
    v[kDone] = two.x, v[kDone + 1] = two.y;
  }
  if constexpr (n % 2 == 1) v[n - 1] = from[n - 1];
}

// Reads the elements of a row that 4 outputs, kHop columns apart, need for kS columns of the window. With a hop of 2, a
// row stores its even columns first and its odd columns `half` floats further. In the plain order, neighbouring threads
// would read every second float, which is a 2-way bank conflict.
template <int kS, int kHop> __device__ __forceinline__ void read_reach(float (&v)[3 * kHop + kS], const float* from,
                                                                       int32_t half) {
  if constexpr (kHop == 2) {
    constexpr int kEven = (6 + kS + 1) / 2, kOdd = (6 + kS) / 2;
    float even[kEven == 7 ? 8 : kEven], odd[kOdd];
    read_row(even, from);
    read_row(odd, from + half);
#pragma unroll
    for (int i = 0; i < 6 + kS; ++i) v[i] = i % 2 ? odd[i / 2] : even[i / 2];
  } else {
    read_row(v, from);
  }
}

// Loads the planes of a tile into shared memory: rows x columns of each, zeros where StridedIndex::index is negative.
// 16 threads share a row.
template <class T, bool kHalves> struct PlaneLoader {
  int32_t rows, columns, pitch, plane, half;
  static constexpr int kLanes = 16, kApart = kHalves ? kLanes / 2 : kLanes;
  static constexpr int kPasses = 5;  // of 16 columns: 80 columns suffice for 64 outputs and windows up to 17 wide

  // Loads `planes` planes. from_plane(i) is the start of the i-th, or null to skip it.
  template <class FromPlane>
  __device__ __forceinline__ void load(float* to, int32_t planes, FromPlane from_plane, const StridedIndex& height,
                                       const StridedIndex& width, int32_t row_stride, int32_t column_stride) const {
    const int32_t lane = threadIdx.x % kLanes, rows_at_once = blockDim.x / kLanes;
    const bool whole = width.step == 1 && width.up == 1 && height.up == 1;
    const uint32_t shared = cvta_to_shared(to);
#pragma unroll 1
    for (int32_t column = lane; column < columns; column += kLanes * kPasses) {
      uint32_t inside = 0, wanted = 0;  // bit j is for pass j: the column exists in in; the column is in the tile
#pragma unroll
      for (int j = 0; j < kPasses; ++j) {
        inside |= uint32_t(uint32_t(width.first + column + j * kLanes) < uint32_t(width.size)) << j;
        wanted |= uint32_t(column + j * kLanes < columns) << j;
      }
      int32_t of_plane = 0, found = -1, row = threadIdx.x / kLanes;
      const T* first = nullptr;
#pragma unroll 1
      for (;; row += rows_at_once) {
        while (row >= rows) row -= rows, ++of_plane;
        if (of_plane >= planes) break;
        if (of_plane != found) {
          first = from_plane(found = of_plane);
          if (whole && first) first += int64_t(width.first + column) * column_stride;
        }
        if (!first) continue;
        const int32_t place = of_plane * plane + row * pitch + (kHalves ? column % 2 * half + column / 2 : column);
        if (whole) {
          const int32_t at = height.first + row * height.step;
          const uint32_t bits = uint32_t(at) < uint32_t(height.size) ? inside : 0;
          // If row `at` is outside of in, this address is computed but not read.
          const T* line = first + int32_t(uint32_t(at) * uint32_t(row_stride));
          const auto bring = [&](int32_t next) {
            if constexpr (sizeof(T) == 4) {
#pragma unroll
              for (int j = 0; j < kPasses; ++j)
                cp_async<4>(shared + (place + j * kApart) * 4, line + j * next, bits & 1u << j, wanted & 1u << j);
            } else {
              float v[kPasses];
#pragma unroll
              for (int j = 0; j < kPasses; ++j) v[j] = bits & 1u << j ? float(line[j * next]) : 0.0f;
#pragma unroll
              for (int j = 0; j < kPasses; ++j)
                if (wanted & 1u << j) to[place + j * kApart] = v[j];
            }
          };
          if (column_stride == 1) bring(kLanes);
          else bring(kLanes * column_stride);
        } else {
          const int32_t at = height.index(row);
          const T* line = first + max_of(at, 0) * row_stride;
#pragma unroll 1
          for (int j = 0; j < kPasses && wanted >> j; ++j) {
            const int32_t index = width.index(column + j * kLanes);
            const T* from = line + max_of(index, 0) * column_stride;
            const bool exists = (at | index) >= 0;
            if constexpr (sizeof(T) == 4) cp_async<4>(shared + (place + j * kApart) * 4, from, exists);
            else to[place + j * kApart] = exists ? float(*from) : 0.0f;
          }
        }
      }
    }
  }
};

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
    if (p.has_bias) {
#pragma unroll
      for (int f = 0; f < kFilters; ++f) {
        if (f >= filters) break;
        const float shift = float(bias[(first_filter + f) * p.bias_stride]);
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) v[f * kOutputs + i] += shift;
      }
    }
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
        source += at_once * p.out.channel, shared += at_once * b.out_plane * 4;
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
        source += 8 * p.out.channel, shared += 8 * b.out_plane * 4;
      }
    }
  }
}

// Partial sums of dw, parts[walker of the tiles][filter][channel][window], which filter_reduce.cu adds. A thread sums kS
// columns of one row of the window for kFilters filters x kChannels channels; kS = 0: one column, with any hop. `in` is
// x, `gradient` is dy. Filters and channels past the last one multiply whatever shared memory contains; their sums are
// separate and never stored.
template <class T, int kChannels, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(threads_of_dw(kFilters), kFilters > 1     ? 1
                                                           : kChannels == 1 ? 4
                                                                            : 3)
    conv_nchw_filter(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
                       const __grid_constant__ NchwBlock b, const T* in, const T* gradient, float* parts,
                       int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kColumns = kS ? kS : 1, kSums = kFilters * kChannels * kColumns, kReach = kS ? 3 * kHop + kS : 4;
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
