// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group, plane by plane: what NCHW wants. A block keeps tiles of a few planes in shared
// memory, as float and with zeros for the padding, so that neither alignment nor borders reach the inner loops; the next
// tile is on its way while one is computed. A thread computes 2 rows x 4 columns of kFilters filters. Without tensor cores.
//   depthwise, kFilters = 1: bound by memory; 3x3 in float32 issues for a third of the time the memory takes
//   few channels, kFilters = 8: bound by products; 3 -> 64 channels, 3x3: 192 products for 10 loads from shared memory
#include "cuda/conv/planes.h"
#include "cuda/device/activate.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/quad.cuh"

namespace minidnn {

constexpr int kMaxThreads = 256;

// n floats from an address of a multiple of 16 bytes.
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

// Brings planes of a tile: rows x columns of each, zeros where a line has no index. columns <= kColumnsOfLane * lanes.
struct PlaneLoader {
  int32_t rows, columns, pitch, plane, lanes;

  // `planes` of them, `from_plane(i)` is where the i-th begins, or null to leave it out.
  template <class T, class FromPlane>
  __device__ __forceinline__ void load(float* to, int32_t planes, FromPlane from_plane, const StencilLine& height,
                                       const StencilLine& width, int32_t row_stride, int32_t column_stride) const {
    const int32_t lane = threadIdx.x & (lanes - 1), rows_at_once = blockDim.x / lanes;
    int64_t offset[kColumnsOfLane];
    bool exists[kColumnsOfLane];
#pragma unroll
    for (int j = 0; j < kColumnsOfLane; ++j) {
      const int32_t index = width.index(lane + j * lanes);
      offset[j] = max_of(index, 0) * column_stride;
      exists[j] = index >= 0;
    }
    const uint32_t shared = shared_address(to + lane);
    int32_t of_plane = 0, found = -1, row = threadIdx.x / lanes;
    const T* first = nullptr;
#pragma unroll 1
    for (;; row += rows_at_once) {
      while (row >= rows) row -= rows, ++of_plane;
      if (of_plane >= planes) break;
      if (of_plane != found) first = from_plane(found = of_plane);
      if (!first) continue;
      const int32_t at = height.index(row);
      const T* line = first + max_of(at, 0) * row_stride;
      const int32_t place = of_plane * plane + row * pitch;
      if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int j = 0; j < kColumnsOfLane; ++j)
          copy_async<4>(shared + (place + j * lanes) * 4, line + offset[j], at >= 0 && exists[j],
                        lane + j * lanes < columns);
      } else {
        float v[kColumnsOfLane];
#pragma unroll
        for (int j = 0; j < kColumnsOfLane; ++j) v[j] = at >= 0 && exists[j] ? float(line[offset[j]]) : 0.0f;
#pragma unroll
        for (int j = 0; j < kColumnsOfLane; ++j)
          if (lane + j * lanes < columns) to[place + lane + j * lanes] = v[j];
      }
    }
  }
};

// kS columns of the window are in registers at a time; 0: one, at any distance between outputs. w is kept as
// [unit][channel][depth, row of the window][column][filter], a row of it padded to four floats.
template <int kFilters, int kS> __device__ __forceinline__ int32_t weight_pitch(const Stencil& p) {
  return (kS ? kS * kFilters + 3 : p.width.taps * kFilters + 3) / 4 * 4;
}

template <class T, int kFilters, int kS>
__device__ __forceinline__ void load_weights(const Stencil& p, const PlaneBlock& b, int32_t first_unit, const T* w,
                                             float* to) {
  const int32_t pitch = weight_pitch<kFilters, kS>(p);
  const int32_t all = b.units * kFilters * p.in_channels * p.taps();
  for (int32_t i = threadIdx.x; i < all; i += blockDim.x) {
    uint32_t rest = i;
    const int32_t s = b.window[2].digit(rest), r = b.window[1].digit(rest), z = b.window[0].digit(rest);
    const int32_t c = b.in_channels.digit(rest), filter = rest % kFilters;
    const int32_t unit = rest / kFilters;
    uint32_t group = first_unit + unit;
    const int32_t o = b.units_of_group.digit(group) * kFilters + filter;
    float weight = 0;
    if (int32_t(group) < p.groups && o < p.out_channels)
      weight = float(w[int64_t(p.w_origin) + int32_t(group) * p.w_group + o * p.w_out + c * p.w_in + z * p.w_tap[0] +
                       r * p.w_tap[1] + s * p.w_tap[2]]);
    to[(((unit * p.in_channels + c) * p.depth.taps + z) * p.height.taps + r) * pitch + s * kFilters + filter] = weight;
  }
}

template <class T> __device__ __forceinline__ void store(const Stencil& p, void* out, int64_t at, float v) {
  if (p.wide) static_cast<float*>(out)[at] = v;
  else static_cast<T*>(out)[at] = T(v);
}
template <class T> __device__ __forceinline__ float load_residual(const Stencil& p, const void* residual, int64_t at) {
  return p.wide ? static_cast<const float*>(residual)[at] : float(static_cast<const T*>(residual)[at]);
}
template <class T> __device__ __forceinline__ void store_quad(const Stencil& p, void* out, int64_t at,
                                                              const float (&v)[4]) {
  if (p.wide) write_quad(static_cast<float*>(out) + at, v);
  else write_quad(static_cast<T*>(out) + at, v);
}

// What a block does one after another: tiles, for each the depth of the window, for each the chunks of channels.
struct PlaneStep {
  uint32_t position;
  int32_t z, channel;

  __device__ PlaneStep next(const Stencil& p, const StencilTiles& tiles, const PlaneBlock& b) const {
    if (channel + b.chunk < p.in_channels) return {position, z, channel + b.chunk};
    if (z + 1 < p.depth.taps) return {position, z + 1, 0};
    return {position + tiles.walkers, 0, 0};
  }
};

// `vectors`: which four elements of out can be stored at once.
template <class T, int kFilters, int kS, int kHop>
__global__ void __launch_bounds__(kMaxThreads, kFilters == 1 ? 4 : 2)
    conv_planes(const __grid_constant__ Stencil p, const __grid_constant__ StencilTiles tiles,
                const __grid_constant__ PlaneBlock b, const T* in, const T* w, const T* bias, const void* residual,
                void* out, float alpha, int32_t vectors) {
  extern __shared__ float4 shared[];
  float* const weights = reinterpret_cast<float*>(shared);
  uint32_t walker = blockIdx.x;
  const int32_t first_unit = tiles.bundles.digit(walker) * b.units;
  const int32_t first_group = b.units_of_group.quotient(first_unit);
  load_weights<T, kFilters, kS>(p, b, first_unit, w, weights);

  uint32_t rest = threadIdx.x;
  const int32_t column = b.quads.digit(rest) * 4, row = b.strips.digit(rest) * 2;  // of the tile
  const int32_t unit = rest;
  uint32_t group = first_unit + unit;
  const int32_t first_out = b.units_of_group.digit(group) * kFilters;
  const bool active = unit < b.units && int32_t(group) < p.groups;

  const PlaneLoader loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.lanes};
  const auto depth_of = [&](const PlaneStep& s) {
    return p.depth.in_line(StencilTile(p, tiles, s.position).depth).index(s.z);
  };
  const auto load = [&](const PlaneStep& s, float* to) {
    const int32_t depth = depth_of(s);
    if (depth < 0) return;
    const StencilTile tile(p, tiles, s.position);
    const T* from = in + tile.image * p.in.image + depth * p.in.depth +
                    (int64_t(first_group) * p.in_channels + s.channel) * p.in.channel;
    loader.load<T>(
        to, b.groups * b.chunk,
        [&](int32_t plane) -> const T* {
          uint32_t g = plane;
          const int32_t c = b.chunk_digit.digit(g);
          const bool exists = first_group + int32_t(g) < p.groups && s.channel + c < p.in_channels;
          return exists ? from + int32_t(g * p.in_channels + c) * p.in.channel : nullptr;
        },
        p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column);
  };

  float* const buffers = weights + b.weights;
  int buffer = 0;
  PlaneStep step{walker, 0, 0};
  load(step, buffers);
  commit_copies();
  float sums[kFilters][2][4] = {};
  while (step.position < tiles.count) {
    const PlaneStep next = step.next(p, tiles, b);
    if (next.position < tiles.count) load(next, buffers + (buffer ^ 1) * b.buffer);
    commit_copies();
    wait_copies<1>();
    __syncthreads();

    if (active && depth_of(step) >= 0) {
      const int32_t pitch = weight_pitch<kFilters, kS>(p);
      const int32_t channels = min_of(b.chunk, p.in_channels - step.channel);
      const float* x = buffers + buffer * b.buffer + (int32_t(group) - first_group) * b.chunk * b.plane +
                       row * p.height.hop * b.pitch + column * (kHop ? kHop : p.width.hop);
      const float* taps =
          weights + ((unit * p.in_channels + step.channel) * p.depth.taps + step.z) * p.height.taps * pitch;
#pragma unroll 1
      for (int32_t c = 0; c < channels; ++c) {
        const float* line = x + c * b.plane;
        const float* window = taps + c * p.depth.taps * p.height.taps * pitch;
#pragma unroll 1
        for (int32_t r = 0; r < p.height.taps; ++r, line += b.pitch, window += pitch) {
          if constexpr (kS > 0) {
            float weight[kS * kFilters];
            read_row(weight, window);
#pragma unroll
            for (int t = 0; t < 2; ++t) {
              float v[3 * kHop + kS];
              read_row(v, line + t * p.height.hop * b.pitch);
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
              float v[2][4];
#pragma unroll
              for (int t = 0; t < 2; ++t)
#pragma unroll
                for (int u = 0; u < 4; ++u) v[t][u] = line[t * p.height.hop * b.pitch + u * p.width.hop + s];
#pragma unroll
              for (int f = 0; f < kFilters; ++f)
#pragma unroll
                for (int t = 0; t < 2; ++t)
#pragma unroll
                  for (int u = 0; u < 4; ++u) sums[f][t][u] += window[s * kFilters + f] * v[t][u];
            }
          }
        }
      }
    }
    __syncthreads();  // before the next but one tile comes into this buffer

    if (active && next.position != step.position) {
      const StencilTile tile(p, tiles, step.position);
      const int32_t out_row = tile.row + row * p.height.spread, out_column = tile.column + column * p.width.spread;
      const int32_t rows = ceil_div(p.height.out - out_row, p.height.spread);
      const int32_t columns = ceil_div(p.width.out - out_column, p.width.spread);
      const auto place = [&](const StencilSide& s, int f) {
        return tile.offset(s) + (int32_t(group) * p.out_channels + first_out + f) * s.channel +
               row * p.height.spread * int64_t(s.row) + column * p.width.spread * int64_t(s.column);
      };
      const int32_t filters = min_of(kFilters, p.out_channels - first_out);
      float v[kFilters * 8];
#pragma unroll
      for (int i = 0; i < kFilters * 8; ++i) {
        v[i] = sums[i / 8][i / 4 % 2][i % 4];
        sums[i / 8][i / 4 % 2][i % 4] = 0;
      }
      if (p.has_bias) {
#pragma unroll
        for (int f = 0; f < kFilters; ++f) {
          if (f >= filters) break;
          const float shift = float(bias[(int32_t(group) * p.out_channels + first_out + f) * p.bias_stride]);
#pragma unroll
          for (int i = 0; i < 8; ++i) v[f * 8 + i] += shift;
        }
      }
      if (p.has_residual) {
        const int64_t down = p.height.spread * int64_t(p.residual.row);
        const int64_t across = p.width.spread * int64_t(p.residual.column);
#pragma unroll
        for (int f = 0; f < kFilters; ++f) {
          const int64_t at = place(p.residual, f);
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (f < filters && i / 4 < rows && i % 4 < columns)
              v[f * 8 + i] += load_residual<T>(p, residual, at + i / 4 * down + i % 4 * across);
        }
      }
      activate_all(p.activation, v, alpha);
      const int64_t down = p.height.spread * int64_t(p.out.row), across = p.width.spread * int64_t(p.out.column);
      const int64_t start = place(p.out, 0);
      if (kFilters > 1 && vectors == kVectorsOfFilters && filters == kFilters) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int f = 0; f < kFilters; f += 4)
            if (i / 4 < rows && i % 4 < columns)
              store_quad<T>(p, out, start + i / 4 * down + i % 4 * across + f,
                            {v[f * 8 + i], v[f * 8 + 8 + i], v[f * 8 + 16 + i], v[f * 8 + 24 + i]});
      } else {
        int64_t at = start;
#pragma unroll
        for (int f = 0; f < kFilters; ++f, at += p.out.channel)
#pragma unroll
          for (int t = 0; t < 2; ++t) {
            if (f >= filters || t >= rows) break;
            const float quad[4] = {v[f * 8 + t * 4], v[f * 8 + t * 4 + 1], v[f * 8 + t * 4 + 2], v[f * 8 + t * 4 + 3]};
            if (vectors == kVectorsOfColumns && columns >= 4) {
              store_quad<T>(p, out, at + t * down, quad);
            } else {
#pragma unroll
              for (int u = 0; u < 4; ++u)
                if (u < columns) store<T>(p, out, at + t * down + u * across, quad[u]);
            }
          }
      }
    }
    step = next;
    buffer ^= 1;
  }
}

// Parts of dw, [walker of the tiles][filter][channel][window]. A thread sums kS columns of one row of a filter's window with
// kChannels channels; kS = 0: one column, at any distance between outputs. in is x, the kernel's `gradient` is of out.
template <class T, int kChannels, int kS, int kHop>
__global__ void __launch_bounds__(kMaxThreads)
    conv_planes_filter(const __grid_constant__ Stencil p, const __grid_constant__ StencilTiles tiles,
                       const __grid_constant__ PlaneBlock b, const T* in, const T* gradient, float* parts) {
  extern __shared__ float4 shared[];
  constexpr int kColumns = kS ? kS : 1, kSums = kChannels * kColumns;
  const int32_t jobs = kS ? p.height.taps : p.height.taps * p.width.taps, filters = p.groups * p.out_channels;
  uint32_t slab = blockIdx.x;
  uint32_t bundle = tiles.bundles.digit(slab);  // filters, channels, depth of the window, jobs
  const int32_t filter_bundles = ceil_div(filters, b.units);
  const int32_t first_filter = int32_t(bundle % filter_bundles) * b.units;
  bundle /= filter_bundles;
  const int32_t first_channel = int32_t(bundle % b.channel_blocks) * kChannels;
  bundle /= b.channel_blocks;
  const int32_t z = int32_t(bundle % p.depth.taps), first_job = int32_t(bundle / p.depth.taps) * b.jobs.divisor;
  const int32_t first_group = b.units_of_group.quotient(first_filter);

  uint32_t rest = threadIdx.x;
  const int32_t walker = b.walkers.digit(rest), job = first_job + b.jobs.digit(rest), unit = rest;
  const int32_t filter = first_filter + unit, group = b.units_of_group.quotient(filter);
  const bool active = unit < b.units && filter < filters && job < jobs;
  const int32_t r = kS ? job : job / p.width.taps, s = kS ? 0 : job % p.width.taps;
  const int32_t channels = min_of(kChannels, p.in_channels - first_channel);

  const PlaneLoader x_loader{b.in_rows, b.in_columns, b.pitch, b.plane, b.lanes};
  const PlaneLoader dy_loader{p.height.tile, p.width.tile, b.out_pitch, b.out_plane, b.lanes};
  const auto load = [&](uint32_t position, float* to) {
    const StencilTile tile(p, tiles, position);
    const int32_t depth = p.depth.in_line(tile.depth).index(z);
    if (depth < 0) return;
    const T* x = in + tile.image * p.in.image + depth * p.in.depth +
                 (int64_t(first_group) * p.in_channels + first_channel) * p.in.channel;
    x_loader.load<T>(
        to, b.groups * kChannels,
        [&](int32_t plane) -> const T* {
          const int32_t g = plane / kChannels, c = plane % kChannels;
          const bool exists = first_group + g < p.groups && c < channels;
          return exists ? x + (g * p.in_channels + c) * p.in.channel : nullptr;
        },
        p.height.in_line(tile.row), p.width.in_line(tile.column), p.in.row, p.in.column);
    const T* dy = gradient + tile.image * p.out.image + tile.depth * p.out.depth + first_filter * p.out.channel;
    dy_loader.load<T>(
        to + b.groups * kChannels * b.plane, b.units,
        [&](int32_t plane) -> const T* {
          return first_filter + plane < filters ? dy + plane * p.out.channel : nullptr;
        },
        p.height.out_line(tile.row), p.width.out_line(tile.column), p.out.row, p.out.column);
  };

  float* const buffers = reinterpret_cast<float*>(shared);
  int buffer = 0;
  load(slab, buffers);
  commit_copies();
  float sums[kChannels][kColumns] = {};
#pragma unroll 1
  for (uint32_t position = slab; position < tiles.count; position += tiles.walkers) {
    if (position + tiles.walkers < tiles.count) load(position + tiles.walkers, buffers + (buffer ^ 1) * b.buffer);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    if (active && p.depth.in_line(StencilTile(p, tiles, position).depth).index(z) >= 0) {
      const float* x = buffers + buffer * b.buffer + (group - first_group) * kChannels * b.plane + r * b.pitch + s;
      const float* dy = buffers + buffer * b.buffer + b.groups * kChannels * b.plane + unit * b.out_plane;
      const int32_t all = b.quads.divisor * p.height.tile;
#pragma unroll 1
      for (int32_t i = walker; i < all; i += b.walkers.divisor) {
        uint32_t row = i;
        const int32_t column = b.quads.digit(row) * 4;
        float g[4];
        read_row(g, dy + row * b.out_pitch + column);
        const float* line = x + row * p.height.hop * b.pitch + column * (kHop ? kHop : p.width.hop);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          if (c >= channels) break;
          if constexpr (kS > 0) {
            float v[3 * kHop + kS];
            read_row(v, line + c * b.plane);
#pragma unroll
            for (int k = 0; k < kS; ++k)
#pragma unroll
              for (int u = 0; u < 4; ++u) sums[c][k] += g[u] * v[u * kHop + k];
          } else {
#pragma unroll
            for (int u = 0; u < 4; ++u) sums[c][0] += g[u] * line[c * b.plane + u * p.width.hop];
          }
        }
      }
    }
    __syncthreads();
    buffer ^= 1;
  }

  // The walkers of a sum are neighbours, a power of two of them: first those of a warp, then the warps'.
  const int32_t in_warp = min_of<int32_t>(b.walkers.divisor, 32), warps = b.walkers.divisor / in_warp;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    float& sum = sums[i / kColumns][i % kColumns];
    for (int apart = in_warp / 2; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffff, sum, apart, 32);
    if (walker % in_warp == 0) buffers[threadIdx.x / in_warp * kSums + i] = sum;
  }
  __syncthreads();
  if (!active || walker != 0) return;
  for (int c = 0; c < channels; ++c)
    for (int k = 0; k < kColumns; ++k) {
      float sum = 0;
      for (int i = 0; i < warps; ++i) sum += buffers[(threadIdx.x / in_warp + i) * kSums + c * kColumns + k];
      const int64_t weight = (int64_t(slab) * filters + filter) * p.in_channels + first_channel + c;
      parts[((weight * p.depth.taps + z) * p.height.taps + r) * p.width.taps + s + k] = sum;
    }
}

}  // namespace minidnn
