// SPDX-License-Identifier: Apache-2.0
// Computes partial sums of dw of a network's first layer by tensor cores (mma.sync), for few channels in NHWC.
// The elements that a row of the window reads, all channels included, are neighbours in x. So for one row of the
// window, dw is a matrix product:
//   dw[filter][n] = sum over pixels of dy[pixel][filter] x[start + pixel * stride * channels + n]
// with n = column * channels + channel. x[start] is the first element that the row of the window reads for pixel 0.
// Rows of x are copied to shared memory 16 bytes at a time. The windows start at any offset in them, so the elements of
// a product are read one by one.
// Grid: tiles of 64 filters x splits; a split is a subset of the tiles of dy (GroupConvTiles). Block: up to 16 warps.
// Shared memory (dynamic): two buffers, each with a tile of dy and a tile of x.
// Numerics: sums in float32; float32 operands are rounded to TF32.
// The kernel is bound by memory. dy is read once. For 3 channels and 7x7 windows in 16 bits, each iteration of a warp
// makes 28 accesses to shared memory for 12 products of 16 x 8 x 16.
#include "cuda/conv/first_layer/first_layer_filter_params.h"

#include "cuda/conv/depthwise/group_conv.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

// The elements of dw that a warp sums: `filters` filters from first_filter on, in row r of the window.
struct FirstLayerFilterWarp {
  int32_t first_filter, filters, r;
  int32_t lane, warp;
  uint32_t tile_split;  // the block's split of the tiles (GroupConvTiles)
  // the warp's first step (adjacent pixels of one mma) in each tile
  int32_t step_split;
};

// Reads this lane's elements of dy for one mma instruction: filters 16 m to 16 m + 15, and the pixels from `pixel` on.
template <class T>
__device__ __forceinline__ void read_dy(uint32_t (&of_dy)[4], const char* dy, int32_t pixel, int m, int32_t lane) {
  constexpr int kPitch = kFirstLayerPitch<T> / int(sizeof(T));
  if constexpr (sizeof(T) == 4) {
    const T* const four = reinterpret_cast<const T*>(dy) + (pixel + lane % 4) * kPitch + m * 16 + lane / 4;
#pragma unroll
    for (int k = 0; k < 4; ++k) of_dy[k] = cvt_rna_tf32(four[k / 2 * 4 * kPitch + k % 2 * 8]);
  } else {
    const int32_t offset = (pixel + lane % 8 + lane / 16 * 8) * kPitch + m * 16 + lane / 8 % 2 * 8;
    ldmatrix_x4_trans(of_dy, cvta_to_shared(dy) + offset * int(sizeof(T)));
  }
}

// Adds the sums of all warps that have the same elements of dw, in a fixed order, and stores them as a partial sum.
template <class T, int kSixteens, int kTilesOfN>
__device__ __forceinline__ void store_partial_sums(const GroupConv& p, const FirstLayerFilterBlock& b,
                                                   const FirstLayerFilterWarp& w, float* shared,
                                                   const float (&sums)[kSixteens][kTilesOfN][4], float* partial_sums) {
  constexpr int kSums = kSixteens * kTilesOfN * 4;
  float* const all_sums = shared + w.lane;
#pragma unroll
  for (int i = 0; i < kSums; ++i)
    all_sums[(w.warp * kSums + i) * 32] = sums[i / (kTilesOfN * 4)][i / 4 % kTilesOfN][i % 4];
  __syncthreads();
  if (w.step_split > 0) return;
#pragma unroll 1
  for (int i = 0; i < kSums; ++i) {
    const int32_t filter = i / (kTilesOfN * 4) * 16 + i % 4 / 2 * 8 + w.lane / 4;
    const int32_t n = i / 4 % kTilesOfN * 8 + w.lane % 4 * 2 + i % 2, column = n / b.channels, channel = n % b.channels;
    if (filter >= w.filters || column >= p.width.taps) continue;
    float sum = 0;
    for (int split = 0; split < b.step_splits; ++split)
      sum += all_sums[((split * p.height.taps + w.r) * kSums + i) * 32];
    const int64_t weight = (int64_t(w.tile_split) * p.out_channels + w.first_filter + filter) * b.channels + channel;
    partial_sums[(weight * p.height.taps + w.r) * p.width.taps + column] = sum;
  }
}

// Computes partial sums of dw, stored as [split][filter][channel][window]; filter_reduce.cu adds them. kTilesOfN: the
// number of tiles of 8 elements (columns x channels) in a row of the window.
template <class T, int kTilesOfN>
__global__ void __launch_bounds__(kFirstLayerWarps * 32, 1)
    conv_first_layer_filter(const __grid_constant__ GroupConv p, const __grid_constant__ GroupConvTiles tiles,
                            const __grid_constant__ FirstLayerFilterBlock b, const T* x, const T* dy,
                            float* partial_sums) {
  extern __shared__ float4 shared[];
  constexpr int kElements = 16 / sizeof(T);  // elements of a 16-byte copy
  // the number of pixels that a warp multiplies per iteration (a step)
  constexpr int kPixels = 2 * kElements;
  constexpr int kSixteens = kFirstLayerFilters / 16;
  char* const buffers = reinterpret_cast<char*>(shared);
  uint32_t tile_split = blockIdx.x;
  const int32_t first_filter = tiles.channel_tiles.divmod(tile_split) * kFirstLayerFilters;
  const int32_t filters = min_of(kFirstLayerFilters, p.out_channels - first_filter);
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t step_split = warp / p.height.taps, r = warp % p.height.taps;

  const auto first_element = [&](const GroupConvTile& tile) {
    // the first element that the tile needs in a row of x
    return (tile.column * p.width.stride - p.width.pad) * b.channels;
  };
  const auto next = [&](const GroupConvStep& s) -> GroupConvStep { return {s.tile + tiles.splits, 0, 0}; };
  const auto load = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    const uint32_t to = cvta_to_shared(buffers + buffer * b.buffer);
    {
      constexpr int kCopies = kFirstLayerFilters / kElements;  // 16-byte copies per pixel
      const int32_t copy = threadIdx.x % kCopies, at_once = blockDim.x / kCopies;
      const int32_t rows = p.height.out - tile.row, columns = p.width.out - tile.column;
      const T* const from = dy + tile.offset(p.out) + (first_filter + copy * kElements);
      const int32_t pixels = p.height.tile * p.width.tile;
      for (int32_t pixel = threadIdx.x / kCopies; pixel < pixels; pixel += at_once) {
        uint32_t row = pixel;
        const int32_t column = b.columns.divmod(row);
        const bool exists = int32_t(row) < rows && column < columns && copy * kElements < filters;
        cp_async<16>(to + pixel * kFirstLayerPitch<T> + copy * 16,
                     from + int32_t(row) * p.out.row + column * p.out.column, exists);
      }
    }
    // Rows of x are copied from a multiple of 16 bytes on. Images begin and end at multiples of 16 bytes, too.
    const int32_t first = first_element(tile) & -kElements, length = p.width.in * b.channels;
    const int32_t first_row = tile.row * p.height.stride - p.height.pad;
    const T* const from = x + tile.image * p.in.image;
    const int32_t copies = b.x_rows * b.copies.divisor;
    for (int32_t i = threadIdx.x; i < copies; i += blockDim.x) {
      uint32_t row = i;
      const int32_t at = first + b.copies.divmod(row) * kElements, y = first_row + int32_t(row);
      const bool exists = uint32_t(at) < uint32_t(length) && uint32_t(y) < uint32_t(p.height.in);
      cp_async<16>(to + b.x_offset + row * b.x_pitch + (at - first) * int(sizeof(T)), from + int64_t(y) * p.in.row + at,
                   exists);
    }
    return true;
  };

  float sums[kSixteens][kTilesOfN][4] = {};
  const auto compute = [&](const GroupConvStep& s, int buffer) {
    const GroupConvTile tile(p, tiles, s.tile);
    // the distance of adjacent windows in x, in elements
    const int32_t pixel_stride = p.width.stride * b.channels;
    const char* const here = buffers + buffer * b.buffer;
    const T* const band = reinterpret_cast<const T*>(here + b.x_offset + r * b.x_pitch) +
                          (first_element(tile) & (kElements - 1)) + lane / 4;
    const int32_t all = p.height.tile * b.steps.divisor;
#pragma unroll 1
    for (int32_t i = step_split; i < all; i += b.step_splits) {
      uint32_t row = i;
      const int32_t column = b.steps.divmod(row) * kPixels, pixel = row * p.width.tile + column;
      const T* const from = band + (row * p.height.stride * (b.x_pitch / int(sizeof(T))) + column * pixel_stride);
      // This lane's elements of x. A function for these reads would take more registers.
      uint32_t of_x[kTilesOfN][2];
#pragma unroll
      for (int n = 0; n < kTilesOfN; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (sizeof(T) == 4) {
            of_x[n][half] = cvt_rna_tf32(from[n * 8 + (lane % 4 + half * 4) * pixel_stride]);
          } else {
            const T* const two = from + (n * 8 + (lane % 4 * 2 + half * 8) * pixel_stride);
            of_x[n][half] = uint32_t(two[0].bits) | uint32_t(two[pixel_stride].bits) << 16;
          }
        }
#pragma unroll
      for (int m = 0; m < kSixteens; ++m) {
        uint32_t of_dy[4];
        read_dy<T>(of_dy, here, pixel, m, lane);
#pragma unroll
        for (int n = 0; n < kTilesOfN; ++n) mma_sync<T>(sums[m][n], of_dy, of_x[n][0], of_x[n][1]);
      }
    }
  };
  for_each_step({tile_split, 0, 0}, tiles.count, next, load, compute, [](const GroupConvStep&) {});
  griddep_launch_dependents();

  store_partial_sums<T>(p, b, {first_filter, filters, r, lane, warp, tile_split, step_split},
                        reinterpret_cast<float*>(shared), sums, partial_sums);
}

}  // namespace minidnn
