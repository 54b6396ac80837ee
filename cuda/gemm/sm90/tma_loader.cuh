// SPDX-License-Identifier: Apache-2.0
// Sm90Loader: loads one operand by TMA into a stage (buffer) of the ring. Only one thread of a block uses it.
#pragma once
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/gemm/sm90/sm90_params.h"

namespace minidnn {

// Splits the index of a tap or of a position into three spatial coordinates. `rest` is what remains: for a position,
// the image.
__device__ __forceinline__ void sm90_digits(const FastDivmod (&size)[3], uint32_t index, int& rest, int (&at)[3]) {
#pragma unroll
  for (int j = 2; j >= 0; --j) {
    const uint32_t next = size[j].quotient(index);
    at[j] = int(index - next * size[j].divisor);
    index = next;
  }
  rest = int(index);
}

// The k of a stage: a tap of the window, a 128-byte block of its channels, and the first channel.
struct Sm90StageK {
  int tap[3], block, channel;
};

// Loads kTileRows rows of an operand. If kShare > 1, a cluster of kShare blocks needs the same rows: each block loads a
// share and multicasts it.
template <class T, Sm90Source kSource, int kTileRows, int kShare, int kSpatial> struct Sm90Loader {
  static constexpr int kK = 128 / sizeof(T);
  static constexpr bool kAlongRows = kSource == Sm90Source::tile_along_rows || kSource == Sm90Source::pixels_along_rows;
  static constexpr uint16_t kBlocks = kShare > 1 ? (1 << kShare) - 1 : 0;
  static constexpr int kRows = kTileRows / kShare;  // the rows that this block loads

  const TensorMap* map;
  const Sm90Problem& p;
  const Sm90Operand& o;
  const int32_t (&first_tap)[2], (&first_offset)[3];
  // the first row that this block loads, in the operand (row) and in the tile (row_in_tile)
  int row, batch, row_in_tile;
  // For pixels_along_k: the image and the position of the first row.
  int image, position[3];
  // For pixels_along_rows: the channel and the tap of each chunk of rows (128 bytes of channels).
  int chunk_channel[kRows / kK + 1], chunk_tap[kRows / kK + 1][3];

  __device__ Sm90Loader(const TensorMap* m, const Sm90Problem& problem, const Sm90Operand& operand,
                        const int32_t (&tap)[2], const int32_t (&offset)[3], int first_row, int b)
      : map(m),
        p(problem),
        o(operand),
        first_tap(tap),
        first_offset(offset),
        row(first_row + (kShare > 1 ? int(cluster_ctarank()) * kRows : 0)),
        batch(b),
        row_in_tile(kShare > 1 ? int(cluster_ctarank()) * kRows : 0) {
    if constexpr (kSource == Sm90Source::pixels_along_k) sm90_digits(p.positions, uint32_t(row), image, position);
    if constexpr (kSource == Sm90Source::pixels_along_rows)
#pragma unroll
      for (int i = 0; i < kRows / kK; ++i) {
        uint32_t chunk = uint32_t(row) / kK + i, t = p.channel_blocks.quotient(chunk);
        chunk_channel[i] = int(chunk - t * p.channel_blocks.divisor) * kK + batch * o.channels_of_batch;
        int beyond;
        sm90_digits(p.window, t, beyond, chunk_tap[i]);
        // Past the last tap, the channel is out of bounds, so TMA writes zeros.
        if (beyond) chunk_channel[i] = 1 << 30;
      }
  }

  // `stage` is the shared-memory address of the operand's rows.
  __device__ __forceinline__ void load(uint32_t stage, uint32_t barrier, const Sm90StageK& k) const {
    const int inner_tap = first_tap[0] + k.tap[2] * o.tap_step[2];
    const int outer_tap = first_tap[1] + k.tap[0] * o.tap_step[0] + k.tap[1] * o.tap_step[1];
    if constexpr (kSource == Sm90Source::tile_along_k) {
      const int at[5] = {k.channel, inner_tap, outer_tap, row, batch * o.batch_step};
      tma_load(stage + row_in_tile * 128, map, barrier, kBlocks, at, o.policy);
    } else if constexpr (kSource == Sm90Source::tile_along_rows) {
#pragma unroll
      for (int i = 0; i < kRows / kK; ++i) {
        const int at[5] = {row + i * kK, inner_tap, outer_tap, k.channel, batch * o.batch_step};
        tma_load(stage + (row_in_tile / kK + i) * 128 * kK, map, barrier, kBlocks, at, o.policy);
      }
    } else if constexpr (kSource == Sm90Source::pixels_along_k) {
      load_pixels(stage + row_in_tile * 128, barrier, k.channel + batch * o.channels_of_batch, image, position, k.tap);
    } else {
      int first_image, first[3];
      sm90_digits(p.positions, uint32_t(k.channel), first_image, first);
#pragma unroll
      for (int i = 0; i < kRows / kK; ++i)
        load_pixels(stage + (row_in_tile / kK + i) * 128 * kK, barrier, chunk_channel[i], first_image, first,
                    chunk_tap[i]);
    }
  }

 private:
  // Loads 128 bytes of channels of successive pixels, at one tap. The first pixel is that of position `from` in
  // first_image.
  __device__ __forceinline__ void load_pixels(uint32_t to, uint32_t barrier, int channel, int first_image,
                                              const int (&from)[3], const int (&tap)[3]) const {
    int at[kSpatial], offset[kSpatial];
#pragma unroll
    for (int j = 0; j < kSpatial; ++j) {
      const int d = j + 3 - kSpatial;
      at[j] = o.corner[d] + from[d] * o.position_step[d];
      offset[j] = first_offset[d] + tap[d] * o.offset_step[d];
    }
    tma_load_im2col(to, map, barrier, kBlocks, channel, at, first_image, offset, o.policy);
  }
};

}  // namespace minidnn
