// SPDX-License-Identifier: Apache-2.0
// Tiles of q, k, v and d_o in shared memory, and their products by mma.sync, for kernels on sm_80 and later.
//
// A tile has kRows rows of kD 16-bit elements. Chunk c (16 bytes) of row r is at the place c ^ (r % 8) of its row, so
// that ldmatrix and stores of fragments have no bank conflicts. A tile begins at a multiple of its row's bytes.
// A fragment is 16 rows with 16 columns each (fragment.cuh), or its transpose.
#pragma once
#include "cuda/device/fragment.cuh"

namespace minidnn {

template <class T, int kTileRows, int kD> struct SharedTile {
  static constexpr int kRows = kTileRows, kRowBytes = 2 * kD, kBytes = kRows * kRowBytes, kChunks = kD / 8;
  static_assert(kD % 64 == 0 && kRows % 16 == 0);

  __device__ __forceinline__ static uint32_t address(uint32_t tile, uint32_t row, uint32_t chunk) {
    return tile + row * kRowBytes + (chunk ^ (row % 8)) * 16;
  }
  // Copies rows by cp.async, with all kThreads threads of a block. Rows from `rows` on and columns from `columns` on
  // become zeros. `columns` is a multiple of 8.
  template <int kThreads>
  __device__ __forceinline__ static void copy(uint32_t tile, const T* from, int64_t pitch, int rows, int columns) {
    constexpr int kRowsAtOnce = kThreads / kChunks;
    static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0);
    const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    from += row * pitch + chunk * 8;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce)
      cp_async<16, true>(address(tile, row + r, chunk), from + r * pitch, row + r < rows && chunk * 8 < columns);
  }
  // The address that this lane passes to load() and load_transposed(), for fragments from row `row` on, a multiple of
  // 16.
  __device__ __forceinline__ static uint32_t lane_address(uint32_t tile, int row) {
    const uint32_t lane = threadIdx.x % 32;
    return address(tile, row + lane % 16, lane / 16);
  }
  // Loads rows `row` to `row` + 15 of columns 16 step to 16 step + 15. As operand a, the words are in order. As operand
  // b, words 0 and 2 are the first 8 rows, and words 1 and 3 the others.
  __device__ __forceinline__ static void load(uint32_t (&f)[4], uint32_t lane_address, int row, int step) {
    ldmatrix_x4(f, (lane_address ^ (32 * step)) + row * kRowBytes);
  }
  // Loads the same elements as operand b whose rows are the columns of the tile. Words 0 and 1 are the first 8 columns,
  // and words 2 and 3 the others.
  __device__ __forceinline__ static void load_transposed(uint32_t (&f)[4], uint32_t lane_address, int row, int step) {
    ldmatrix_x4_trans(f, (lane_address ^ (32 * step)) + row * kRowBytes);
  }
};

// sums += a b^T over all columns of two tiles. `sums` has 16 kBlocks rows of tile A, and all rows of tile B.
template <class T, class A, class B, int kBlocks, int kFragments>
__device__ __forceinline__ void multiply_rows(float (&sums)[kBlocks][kFragments][4], uint32_t a_lane, uint32_t b_lane) {
#pragma unroll
  for (int step = 0; step < A::kRowBytes / kFragmentBytes; ++step) {
    uint32_t a[kBlocks][4], b[4];
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) A::load(a[m], a_lane, 16 * m, step);
#pragma unroll
    for (int n = 0; n < kFragments; n += 2) {
      B::load(b, b_lane, 8 * n, step);
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        mma_sync<T>(sums[m][n], a[m], b[0], b[2]);
        mma_sync<T>(sums[m][n + 1], a[m], b[1], b[3]);
      }
    }
  }
}

// sums += weights b. The weights are accumulators of mma.sync, and are rounded to T. `sums` has the columns of tile B
// from the one of `b_lane` on.
template <class T, class B, int kBlocks, int kFragments, int kColumnFragments>
__device__ __forceinline__ void multiply_weights(float (&sums)[kBlocks][kColumnFragments][4],
                                                 const float (&weights)[kBlocks][kFragments][4], uint32_t b_lane) {
#pragma unroll
  for (int k = 0; k < kFragments; k += 2) {
    uint32_t a[kBlocks][4], b[4];
#pragma unroll
    for (int m = 0; m < kBlocks; ++m)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float* const pair = &weights[m][k + w / 2][w % 2 * 2];
        a[m][w] = cvt_rn_x2(T(), pair[0], pair[1]);
      }
#pragma unroll
    for (int n = 0; n < kColumnFragments; n += 2) {
      B::load_transposed(b, b_lane, 8 * k, n / 2);
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        mma_sync<T>(sums[m][n], a[m], b[0], b[1]);
        mma_sync<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Where a warp stores rows of a result. Of its rows, the first `rows` exist, and the first `used` are not zero.
template <class T> struct StoredRows {
  T* to;  // row 0, column 0
  int64_t pitch;
  int rows, used, columns;
};
// Stores sums * factor, through rows `row` on of a tile that no other warp uses any more. `chunk` is the first chunk of
// these rows that is used.
template <class T, class Tile, int kBlocks, int kFragments>
__device__ __forceinline__ void store_rows(const float (&sums)[kBlocks][kFragments][4], float factor, uint32_t tile,
                                           int row, int chunk, const StoredRows<T>& out) {
  char* const memory = dynamic_shared();
  const uint32_t lane = threadIdx.x % 32, base = cvta_to_shared(memory);
#pragma unroll
  for (int m = 0; m < kBlocks; ++m)
#pragma unroll
    for (int n = 0; n < kFragments; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const pair = &sums[m][n][2 * half];
        const uint32_t at = Tile::address(tile, row + 16 * m + 8 * half + lane / 4, chunk + n) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(memory + (at - base)) = cvt_rn_x2(T(), pair[0] * factor, pair[1] * factor);
      }
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < 16 * kBlocks * kFragments; i += 32) {
    const int r = i / kFragments, c = i % kFragments;
    uint4 v = ld_shared_v4_b32(Tile::address(tile, row + r, chunk + c));
    if (r >= out.used) v = {0, 0, 0, 0};
    if (r < out.rows && c * 8 < out.columns) st_global_v4(out.to + r * out.pitch + c * 8, v);
  }
}

}  // namespace minidnn
