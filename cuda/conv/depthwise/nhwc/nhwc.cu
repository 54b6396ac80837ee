// SPDX-License-Identifier: Apache-2.0
// Computes y, dx and partial sums of dw, for convolutions with few channels in a group and contiguous channels (NHWC).
// Method: a block copies tiles of pixels to shared memory. Of each pixel, it copies a slice: 64 bytes of channels.
// Zeros stand for the padding, so the inner loops need no checks of alignment or borders. There are two buffers: the
// next tile is loaded while the current one is computed. A thread computes 4 channels of 7 neighbouring outputs of a
// row.
// In a depthwise convolution, an output depends on one channel of the input. With kGrouped, it depends on all channels
// of its group. A group has equal numbers of input and output channels, a multiple of 4.
// Grid: one block for each channel tile (slice) and each split (some tiles); see GroupConvTiles. Block: up to 224
// threads for y and dx, up to 256 for dw. Shared memory (dynamic): the weights as float, and two buffers of `buffer`
// bytes.
// Bytes: x (for dw also dy) is read about once from memory, and y or dx is written once. For dw, each split of the
// tiles writes one partial sum. Numerics: sums in float32.
// Depthwise 3x3 in bfloat16 is bound by memory: with tiles of 14 x 14 outputs, x is read 1.3 times from L2 and once
// from memory. 7x7 windows and groups of 4 channels are bound by arithmetic. For each load from shared memory, a thread
// executes 10 multiply-adds with 7x7 windows, and 16 with groups of 4 channels.
#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/conv/depthwise/nhwc/nhwc_params.h"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

constexpr int kMaxThreads = 256, kTileThreads = 224;

// The number of channels that a block computes: as many as 64 bytes of a pixel contain.
template <class T> constexpr int kSlice = kSliceBytes / sizeof(T);
template <class T> constexpr int kQuads = kSlice<T> / 4;
// The distance of the weights of two adjacent taps in shared memory, in floats. Its padding reduces bank conflicts.
template <class T> constexpr int kWeightPitch = kSlice<T> + 4;

// The part of a tensor that a tile contains. `vectors`: whether pixels can be loaded in vectors of 16 bytes.
struct PixelRegion {
  int32_t channels;
  const GroupConvStrides& strides;
  StridedIndex height, width;
  bool vectors;
};

// Copies a tile of pixels to shared memory, with one slice (64 bytes of channels) of each pixel.
template <class T>
__device__ __forceinline__ void load_pixels(T* to, int32_t pitch, int32_t rows, const FastDivmod& columns,
                                            const T* from, const PixelRegion& region) {
  const int32_t channels = region.channels;
  const GroupConvStrides& strides = region.strides;
  const StridedIndex &height = region.height, &width = region.width;
  const bool vectors = region.vectors;
  const int32_t per_pixel = vectors ? kSliceBytes / 16 : kQuads<T>, at_once = blockDim.x / per_pixel;
  const int32_t channel = threadIdx.x % per_pixel * (kSlice<T> / per_pixel), pixel = threadIdx.x / per_pixel;
  const int32_t rows_at_once = max_of<int32_t>(columns.quotient(at_once), 1);
  uint32_t rest = pixel;
  const int32_t first_column = columns.divmod(rest), first_row = rest;
  if (first_row >= rows_at_once) return;
  for (int32_t column = first_column; column < int32_t(columns.divisor); column += at_once) {
    const int32_t x = width.index(column);
    const T* source = from + max_of(x, 0) * strides.column;
    T* target = to + (first_row * pitch + column) * kSlice<T> + channel;
    if (vectors) {
      const bool exists = x >= 0 && channel < channels;
      if (exists) source += channel;
      uint32_t shared = cvta_to_shared(target);
      const int32_t shared_step = rows_at_once * pitch * kSliceBytes;
      if (height.up == 1) {
        const int32_t step = rows_at_once * height.step;
        int32_t y = height.first + first_row * height.step;
        const T* line = source + int64_t(y) * strides.row;
#pragma unroll 2
        for (int32_t row = first_row; row < rows; row += rows_at_once) {
          cp_async<16>(shared, line, exists && uint32_t(y) < uint32_t(height.size));
          y += step;
          line += int64_t(step) * strides.row;
          shared += shared_step;
        }
      } else {
        for (int32_t row = first_row; row < rows; row += rows_at_once, shared += shared_step) {
          const int32_t y = height.index(row);
          cp_async<16>(shared, source + max_of(y, 0) * strides.row, exists && y >= 0);
        }
      }
    } else {
      for (int32_t row = first_row; row < rows; row += rows_at_once, target += rows_at_once * pitch * kSlice<T>) {
        const int32_t y = height.index(row);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          target[i] = (x | y) >= 0 && channel + i < channels ? source[y * strides.row + (channel + i) * strides.channel]
                                                             : T(0.0f);
      }
    }
  }
}

// Copies the weights of a slice to shared memory as floats: [tap][input channel of the group][channel of the slice].
template <class T> __device__ __forceinline__ void load_weights(const GroupConv& p, const NhwcBlock& b,
                                                                int32_t first_channel, int32_t channels, const T* w,
                                                                float* to) {
  const int32_t all = p.taps() * p.in_channels * kSlice<T>;
  for (int32_t i = threadIdx.x; i < all; i += blockDim.x) {
    uint32_t rest = i;
    const int32_t s = b.window[2].divmod(rest), r = b.window[1].divmod(rest), z = b.window[0].divmod(rest);
    const int32_t c = b.in_channels.divmod(rest), channel = rest;
    uint32_t group = first_channel + channel;
    // p.in_channels is also the number of output channels of a group
    const int32_t o = b.in_channels.divmod(group);
    const int32_t tap = (z * p.height.taps + r) * p.width.taps + s;
    to[(tap * p.in_channels + c) * kWeightPitch<T> + channel] =
        channel < channels ? float(w[int64_t(p.w_origin) + int32_t(group) * p.w_group + o * p.w_out + c * p.w_in +
                                     z * p.w_tap[0] + r * p.w_tap[1] + s * p.w_tap[2]])
                           : 0.0f;
  }
}

// Adds the products of n adjacent taps of a row of the window, for kIn input channels. The windows of adjacent outputs
// start `hop` pixels apart. kHop is `hop` as a compile-time constant, or 0 for any value; then n must be 1.
template <class T, int n, int kHop, int kIn>
__device__ __forceinline__ void add_products(float (&sums)[kSpan][4], const T* line, const float* weights,
                                             int32_t column_pitch, int32_t hop) {
  float w[n][kIn][4];
#pragma unroll
  for (int s = 0; s < n; ++s)
#pragma unroll
    for (int c = 0; c < kIn; ++c) read_quad(w[s][c], weights + s * column_pitch + c * kWeightPitch<T>);
  const auto add = [&](int u, int s, const float(&x)[4]) {
    if constexpr (kIn == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[u][i] += w[s][0][i] * x[i];
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[u][i] += w[s][c][i] * x[c];
    }
  };
  if constexpr (kHop > 0) {
#pragma unroll
    for (int k = 0; k < (kSpan - 1) * kHop + n; ++k) {
      float x[4];
      read_quad(x, line + k * kSlice<T>);
#pragma unroll
      for (int s = 0; s < n; ++s)
        if (k >= s && (k - s) % kHop == 0 && (k - s) / kHop < kSpan) add((k - s) / kHop, s, x);
    }
  } else {
#pragma unroll
    for (int u = 0; u < kSpan; ++u) {
      float x[4];
      read_quad(x, line + u * hop * kSlice<T>);
      add(u, 0, x);
    }
  }
}

// The outputs of a thread: kSpan pixels of a row, with four channels each. They have the same place in every tile.
struct NhwcThread {
  // the block's first channel, and the number of its channels
  int32_t first_channel, channels;
  int32_t channel;  // the thread's first channel, relative to first_channel
  // the thread's first output, relative to the first output of the tile
  int32_t column, row;

  // the distance in elements from the tile's first output to the thread's first output
  __device__ __forceinline__ int64_t offset(const GroupConv& p, const GroupConvStrides& s) const {
    return (first_channel + channel) * s.channel + row * p.height.spread * int64_t(s.row) +
           column * p.width.spread * int64_t(s.column);
  }
};

// Adds the products of one depth of the window. `pixels` and `window` are the input and the weights at that depth.
template <class T, int kS, int kHop, bool kGrouped>
__device__ __forceinline__ void add_window(const GroupConv& p, const NhwcBlock& b, const NhwcThread& thread,
                                           const T* pixels, const float* window, float (&sums)[kSpan][4]) {
  const int32_t hop = kHop ? kHop : p.width.hop, column_pitch = p.in_channels * kWeightPitch<T>;
  const T* line = pixels + (thread.row * p.height.hop * b.pitch + thread.column * hop) * kSlice<T>;
  window += thread.channel;
  // The thread reads its own four channels or, with kGrouped, all channels of its group.
  const int32_t first = kGrouped ? int32_t(b.in_channels.quotient(thread.channel)) * p.in_channels : thread.channel;
  const int32_t in_channels = kGrouped ? p.in_channels : 4;
#pragma unroll 1
  for (int32_t r = 0; r < p.height.taps; ++r) {
#pragma unroll 1
    for (int32_t c = 0; c < in_channels; c += 4) {
      const T* from = line + first + c;
      const float* at = window + (kGrouped ? c * kWeightPitch<T> : 0);
      if constexpr (kS > 0) {
        add_products<T, kS, kHop, kGrouped ? 4 : 1>(sums, from, at, column_pitch, hop);
      } else {
#pragma unroll 1
        for (int32_t s = 0; s < p.width.taps; ++s)
          add_products<T, 1, 0, kGrouped ? 4 : 1>(sums, from + s * kSlice<T>, at + s * column_pitch, 0, hop);
      }
    }
    line += b.pitch * kSlice<T>;
    window += p.width.taps * column_pitch;
  }
}

// The epilogue of a tile: adds bias and residual, applies the activation, stores the outputs, and resets the sums.
template <class T>
__device__ __forceinline__ void finish_tile(const GroupConv& p, const GroupConvTile& tile, const NhwcThread& thread,
                                            const GroupConvOperands<T>& a, float alpha, bool vectors,
                                            float (&sums)[kSpan][4]) {
  const int32_t out_row = tile.row + thread.row * p.height.spread;
  const int32_t out_column = tile.column + thread.column * p.width.spread;
  const int32_t columns = out_row < p.height.out ? ceil_div(p.width.out - out_column, p.width.spread) : 0;
  const int32_t first = thread.first_channel + thread.channel, left = thread.channels - thread.channel;
  float v[kSpan * 4], shift[4] = {};
  if (p.has_bias) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < left) shift[i] = float(a.bias[(first + i) * p.bias_stride]);
  }
#pragma unroll
  for (int i = 0; i < kSpan * 4; ++i) {
    v[i] = sums[i / 4][i % 4] + shift[i % 4];
    sums[i / 4][i % 4] = 0;
  }
  finish_sums(p, v, alpha, [&](int u, float(&four)[4]) {
    const int64_t at =
        tile.offset(p.residual) + thread.offset(p, p.residual) + u * p.width.spread * int64_t(p.residual.column);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (u < columns && i < left) four[i] += load_residual<T>(p, a.residual, at + i * p.residual.channel);
  });
  int64_t at = tile.offset(p.out) + thread.offset(p, p.out);
#pragma unroll
  for (int u = 0; u < kSpan; ++u, at += p.width.spread * int64_t(p.out.column)) {
    if (u >= columns) break;
    if (vectors && left >= 4) {
      store_quad<T>(p, a.out, at, {v[u * 4], v[u * 4 + 1], v[u * 4 + 2], v[u * 4 + 3]});
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (i < left) store<T>(p, a.out, at + i * p.out.channel, v[u * 4 + i]);
    }
  }
}

// Computes y or dx. kS is the width of the window and kHop the stride. kS = kHop = 0 means any window.
template <class T, int kS, int kHop, bool kGrouped>
__global__ void __launch_bounds__(kTileThreads, kGrouped ? 2 : 3)
    conv_nhwc(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
              const __grid_constant__ NhwcBlock b, const __grid_constant__ GroupConvOperands<T> a, float alpha,
              int32_t vectors_in, int32_t vectors_out) {
  extern __shared__ float4 shared[];
  float* const weights = reinterpret_cast<float*>(shared);
  char* const buffers = reinterpret_cast<char*>(shared) + b.weights;
  uint32_t first_tile = blockIdx.x;
  const int32_t first_channel = tiles.channel_tiles.divmod(first_tile) * kSlice<T>;
  const int32_t channels = min_of(kSlice<T>, p.groups * p.out_channels - first_channel);
  load_weights(p, b, first_channel, channels, a.w, weights);

  uint32_t rest = threadIdx.x / kQuads<T>;
  const int32_t channel =
      threadIdx.x % kQuads<T> * 4;  // the thread's first channel, relative to the first channel of the block
  const int32_t column = b.spans.divmod(rest) * kSpan, row = rest;
  const bool active = row < p.height.tile;
  const NhwcThread thread{first_channel, channels, channel, column, row};

  const auto next = [&](const GroupConvStep& s) -> GroupConvStep {
    if (s.z + 1 < p.depth.taps) return {s.tile, s.z + 1, 0};
    return {s.tile + tiles.splits, 0, 0};
  };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    const T* from = a.in + tile.image * p.in.image + depth * p.in.depth + first_channel * p.in.channel;
    load_pixels(reinterpret_cast<T*>(buffers + buffer * b.buffer), b.pitch, b.in_rows, b.in_columns, from,
                {channels, p.in, p.height.in_line(tile.row), p.width.in_line(tile.column), bool(vectors_in)});
    return true;
  };
  float sums[kSpan][4] = {};
  const auto compute = [&](const GroupConvStep& s, int buffer) {
    if (!active) return;
    const int32_t weights_of_depth = p.height.taps * p.width.taps * p.in_channels * kWeightPitch<T>;
    add_window<T, kS, kHop, kGrouped>(p, b, thread, reinterpret_cast<const T*>(buffers + buffer * b.buffer),
                                      weights + s.z * weights_of_depth, sums);
  };
  const auto finish = [&](const GroupConvStep& s) {
    if (active) finish_tile<T>(p, GroupConvTile(p, tiles, s.tile), thread, a, alpha, vectors_out, sums);
  };
  for_each_step({first_tile, 0, 0}, tiles.count, next, load, compute, finish);
}

// The elements of dw that a thread sums: four filters from first_channel + channel on; with kGrouped, four input
// channels from first_in on; the window's depth z, row r, and columns from s on.
struct NhwcFilterThread {
  int32_t first_channel, channels, channel, first_in, z, r, s;
  int32_t filters;      // the number of filters of w
  uint32_t tile_split;  // the block's split of the tiles (GroupConvTiles)
  // the thread's first position (kSpan pixels of a row) in each tile
  int32_t position_split;
  bool active;  // false if the thread has no element of dw
};

// Adds the products of kSpan pixels of dy and the pixels of x in their windows.
template <class T, int kS, int kHop, bool kGrouped, int kColumns, int kIn>
__device__ __forceinline__ void add_span(const T* x_line, const T* dy_line, int32_t hop,
                                         float (&sums)[kColumns][kIn][4]) {
  float g[kSpan][4];
#pragma unroll
  for (int u = 0; u < kSpan; ++u) read_quad(g[u], dy_line + u * kSlice<T>);
  const auto add = [&](int u, int k, const float(&v)[4]) {
    if constexpr (kGrouped) {
#pragma unroll
      for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int f = 0; f < 4; ++f) sums[k][c][f] += g[u][f] * v[c];
    } else {
#pragma unroll
      for (int f = 0; f < 4; ++f) sums[k][0][f] += g[u][f] * v[f];
    }
  };
  if constexpr (kS > 0) {
#pragma unroll
    for (int at = 0; at < (kSpan - 1) * kHop + kS; ++at) {
      float v[4];
      read_quad(v, x_line + at * kSlice<T>);
#pragma unroll
      for (int k = 0; k < kS; ++k)
        if (at >= k && (at - k) % kHop == 0 && (at - k) / kHop < kSpan) add((at - k) / kHop, k, v);
    }
  } else {
#pragma unroll
    for (int u = 0; u < kSpan; ++u) {
      float v[4];
      read_quad(v, x_line + u * hop * kSlice<T>);
      add(u, 0, v);
    }
  }
}

// Adds the sums of all threads that have the same elements of dw, and stores the result as a partial sum. These threads
// are kQuads apart.
template <class T, int kColumns, int kIn>
__device__ __forceinline__ void store_partial_sums(const GroupConv& p, const NhwcBlock& b,
                                                   const NhwcFilterThread& thread, float* shared,
                                                   const float (&sums)[kColumns][kIn][4], float* partial_sums) {
  constexpr int kSums = kColumns * kIn * 4;
#pragma unroll
  for (int i = 0; i < kSums; ++i) shared[i * blockDim.x + threadIdx.x] = sums[i / (kIn * 4)][i / 4 % kIn][i % 4];
  __syncthreads();
  if (!thread.active || thread.position_split != 0) return;
#pragma unroll 1
  for (int i = 0; i < kSums; ++i) {
    const int k = i / (kIn * 4), c = i / 4 % kIn, filter = thread.channel + i % 4;
    if (filter >= thread.channels) continue;
    float sum = 0;
    for (int j = 0; j < int(b.position_splits.divisor); ++j)
      sum += shared[i * blockDim.x + threadIdx.x + j * kQuads<T>];
    const int64_t weight =
        (int64_t(thread.tile_split) * thread.filters + thread.first_channel + filter) * p.in_channels +
        thread.first_in + c;
    partial_sums[((weight * p.depth.taps + thread.z) * p.height.taps + thread.r) * p.width.taps + thread.s + k] = sum;
  }
}

// Computes partial sums of dw, stored as [split][filter][channel][window]; filter_reduce.cu adds them. A thread sums
// four filters x kS columns (kS = 0: one column, any stride) of one row of the window, with four input channels if
// kGrouped, else one.
template <class T, int kS, int kHop, bool kGrouped>
__global__ void __launch_bounds__(kMaxThreads, kGrouped ? 2 : 3)
    conv_nhwc_filter(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
                     const __grid_constant__ NhwcBlock b, const T* in, const T* gradient, float* partial_sums,
                     int32_t vectors) {
  extern __shared__ float4 shared[];
  constexpr int kColumns = kS ? kS : 1, kIn = kGrouped ? 4 : 1;
  const int32_t filters = p.groups * p.out_channels, rows_of_jobs = kS ? p.height.taps : p.height.taps * p.width.taps;
  uint32_t tile_split = blockIdx.x;
  // The coordinates of the channel tile, fastest first: slice, depth of the window, jobs (NhwcBlock).
  uint32_t channel_tile = tiles.channel_tiles.divmod(tile_split);
  const int32_t first_channel = int32_t(channel_tile % b.slices) * kSlice<T>;
  channel_tile /= b.slices;
  const int32_t z = int32_t(channel_tile % p.depth.taps),
                first_job = int32_t(channel_tile / p.depth.taps) * b.jobs.divisor;
  const int32_t channels = min_of(kSlice<T>, filters - first_channel);

  uint32_t rest = threadIdx.x / kQuads<T>;
  const int32_t channel =
      threadIdx.x % kQuads<T> * 4;  // the thread's first channel, relative to the first channel of the block
  const int32_t position_split = b.position_splits.divmod(rest), job = first_job + int32_t(rest);
  const int32_t first_in = kGrouped ? job / rows_of_jobs * 4 : 0, tap = kGrouped ? job % rows_of_jobs : job;
  const int32_t r = kS ? tap : tap / p.width.taps, s = kS ? 0 : tap % p.width.taps;
  const bool active = rest < b.jobs.divisor && job < rows_of_jobs * (kGrouped ? p.in_channels / 4 : 1);
  const int32_t in_channel = kGrouped ? int32_t(b.in_channels.quotient(channel)) * p.in_channels + first_in : channel;

  char* const buffers = reinterpret_cast<char*>(shared);
  const int32_t dy_offset = b.in_rows * b.pitch * kSlice<T>;
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep { return {s.tile + tiles.splits, s.z, 0}; };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    const int32_t depth = p.depth.in_line(tile.depth).index(s.z);
    if (depth < 0) return false;
    T* const to = reinterpret_cast<T*>(buffers + buffer * b.buffer);
    const T* x = in + tile.image * p.in.image + depth * p.in.depth + first_channel * p.in.channel;
    load_pixels(to, b.pitch, b.in_rows, b.in_columns, x,
                {channels, p.in, p.height.in_line(tile.row), p.width.in_line(tile.column), bool(vectors)});
    const T* dy = gradient + tile.image * p.out.image + tile.depth * p.out.depth + first_channel * p.out.channel;
    load_pixels(to + dy_offset, b.out_pitch, p.height.tile, b.out_columns, dy,
                {channels, p.out, p.height.out_line(tile.row), p.width.out_line(tile.column), bool(vectors)});
    return true;
  };

  float sums[kColumns][kIn][4] = {};
  const auto compute = [&](const GroupConvStep&, int buffer) {
    if (!active) return;
    const int32_t hop = kHop ? kHop : p.width.hop;
    const T* x = reinterpret_cast<const T*>(buffers + buffer * b.buffer);
    const T* dy = x + dy_offset + channel;
    x += (r * b.pitch + s) * kSlice<T> + in_channel;
    const int32_t all = b.spans.divisor * p.height.tile;
#pragma unroll 1
    for (int32_t i = position_split; i < all; i += b.position_splits.divisor) {
      uint32_t row = i;
      const int32_t column = b.spans.divmod(row) * kSpan;
      const T* dy_line = dy + (row * b.out_pitch + column) * kSlice<T>;
      const T* x_line = x + (row * p.height.hop * b.pitch + column * hop) * kSlice<T>;
      add_span<T, kS, kHop, kGrouped>(x_line, dy_line, hop, sums);
    }
  };
  for_each_step({tile_split, z, 0}, tiles.count, next, load, compute, [](const GroupConvStep&) {});
  griddep_launch_dependents();

  const NhwcFilterThread thread{first_channel, channels,   channel,        first_in, z, r, s,
                                filters,       tile_split, position_split, active};
  store_partial_sums<T>(p, b, thread, reinterpret_cast<float*>(shared), sums, partial_sums);
}

}  // namespace minidnn
