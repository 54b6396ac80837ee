// SPDX-License-Identifier: Apache-2.0
// Tiles of q, k, v and d_o in shared memory, and their products by mma.sync, for kernels on sm_80 and later.
//
// A tile has kRows rows of kD elements of 16 bits, or of float32. Chunk c (16 bytes) of row r is at the place
// c ^ (r % 8) of its row, so that ldmatrix and stores of fragments have no bank conflicts. A tile begins at a multiple
// of its row's bytes. A fragment is 16 rows with 32 bytes each (fragment.cuh), or its transpose.
// Float32 elements are multiplied as TF32. The conversion takes four instructions, and several warps read an element,
// so elements are rounded in shared memory, once.
#pragma once
#include "cuda/device/fragment.cuh"
#include "cuda/device/vec.cuh"

namespace minidnn {

template <class T> constexpr bool kIsFloat32 = sizeof(T) == 4;

// Rounds the four float32 of a chunk to TF32.
__device__ __forceinline__ void round_chunk(uint32_t address) {
  const float4 v = ld_shared_v4_f32(address);
  st_shared_v4_b32(address, {cvt_rna_tf32(v.x), cvt_rna_tf32(v.y), cvt_rna_tf32(v.z), cvt_rna_tf32(v.w)});
}

// A lane passes the address of row `row` of matrix second + 2 * third to ldmatrix.
struct MatrixLane {
  int row, second, third;

  __device__ __forceinline__ explicit MatrixLane(int lane) : row(lane % 8), second(lane / 8 % 2), third(lane / 16) {}
};

// The operands of weights * rows, where the weights are accumulators of mma.sync, and the rows are in shared memory: a
// lane reads from row_of() and chunk_of() on.
//
// For 16 bits, two fragments of accumulators are the operand a of a product, and ldmatrix loads operand b.
// For float32, one fragment is operand a. The k of a product may be in any order: lane q of four holds the columns 2 q
// and 2 q + 1 of the accumulators, which become k = q and k = q + 4. So the lane's k of operand b are rows 2 q and
// 2 q + 1. Columns may be in any order, too: the lane loads four neighbouring columns of a row at once, one for each of
// four fragments (for_each_lane_values). With the places of the chunks in a tile, these loads have no bank conflicts.
template <class T> struct WeightedRows {
  static constexpr int kWeights = kIsFloat32<T> ? 1 : 2;  // fragments of weights, of 8 rows of operand b each
  static constexpr int kLoaded = kIsFloat32<T> ? 4 : 2;   // fragments of operand b that a load gives, of 8 columns each

  __device__ __forceinline__ static int row_of(const MatrixLane& at) {
    return kIsFloat32<T> ? 2 * (at.row % 4) : 8 * at.second + at.row;
  }
  __device__ __forceinline__ static int chunk_of(const MatrixLane& at) {
    return kIsFloat32<T> ? 4 * at.third + 2 * at.second + at.row / 4 : at.third;
  }
  // Operand a from kWeights fragments.
  __device__ __forceinline__ static void round(uint32_t (&a)[4], const float (*weights)[4]) {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      if constexpr (kIsFloat32<T>) {
        a[w] = cvt_rna_tf32(weights[0][w % 2 * 2 + w / 2]);
      } else {
        const float* const pair = &weights[w / 2][w % 2 * 2];
        a[w] = cvt_rn_x2(T(), pair[0], pair[1]);
      }
  }
  // b[n] is operand b of fragment n.
  __device__ __forceinline__ static void load(uint32_t (&b)[kLoaded][2], uint32_t address, int row_bytes) {
    if constexpr (kIsFloat32<T>) {
      const uint4 even = ld_shared_v4_b32(address), odd = ld_shared_v4_b32((address ^ 16) + row_bytes);
      const uint32_t words[4][2] = {{even.x, odd.x}, {even.y, odd.y}, {even.z, odd.z}, {even.w, odd.w}};
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int k = 0; k < 2; ++k) b[n][k] = words[n][k];
    } else {
      uint32_t f[4];
      ldmatrix_x4_trans(f, address);
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = f[i];
    }
  }
};

// Neighbouring columns of a row of WeightedRows<T> that are in the same lane.
template <class T> constexpr int kLaneColumns = kIsFloat32<T> ? 4 : 2;
template <class T> using LaneValues = float[kLaneColumns<T>];

// Calls use(chunk, element, values) for all LaneValues in row lane / 4 + 8 half of fragments. `values` begin at element
// `element` of chunk `chunk` of the row.
template <class T, int kFragments, class Use>
__device__ __forceinline__ void for_each_lane_values(const float (&sums)[kFragments][4], int half, Use use) {
  const int lane = threadIdx.x % 32;
  if constexpr (kIsFloat32<T>) {
    static_assert(kFragments % 4 == 0);
#pragma unroll
    for (int n = 0; n < kFragments; n += 4)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        const LaneValues<T> values = {sums[n][e], sums[n + 1][e], sums[n + 2][e], sums[n + 3][e]};
        use(2 * n + 2 * (lane % 4) + e % 2, 0, values);
      }
  } else {
#pragma unroll
    for (int n = 0; n < kFragments; ++n) {
      const LaneValues<T> values = {sums[n][2 * half], sums[n][2 * half + 1]};
      use(n, 2 * (lane % 4), values);
    }
  }
}
// Stores values as elements of T.
template <class T> __device__ __forceinline__ void store_lane_values(void* to, const LaneValues<T>& values) {
  using Packed = Vec<T, kLaneColumns<T>>;
  *static_cast<Packed*>(to) = Packed::pack(values);
}

template <class T, int kTileRows, int kD> struct SharedTile {
  static constexpr int kRows = kTileRows, kRowBytes = sizeof(T) * kD, kBytes = kRows * kRowBytes;
  static constexpr int kChunks = kRowBytes / 16, kOfChunk = 16 / sizeof(T);
  static_assert(kRowBytes % 128 == 0 && kRows % 16 == 0);

  __device__ __forceinline__ static uint32_t address(uint32_t tile, uint32_t row, uint32_t chunk) {
    return tile + row * kRowBytes + (chunk ^ (row % 8)) * 16;
  }
  // Copies rows by cp.async, with all kThreads threads of a block. Rows from `rows` on and columns from `columns` on
  // become zeros. `columns` is a multiple of kOfChunk.
  template <int kThreads>
  __device__ __forceinline__ static void copy(uint32_t tile, const T* from, int64_t pitch, int rows, int columns) {
    constexpr int kRowsAtOnce = kThreads / kChunks;
    static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0);
    const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    from += row * pitch + chunk * kOfChunk;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce)
      cp_async<16, true>(address(tile, row + r, chunk), from + r * pitch, row + r < rows && chunk * kOfChunk < columns);
  }
  // Rounds what this thread has copied.
  template <int kThreads> __device__ __forceinline__ static void round(uint32_t tile) {
    constexpr int kRowsAtOnce = kThreads / kChunks;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce)
      round_chunk(address(tile, threadIdx.x / kChunks + r, threadIdx.x % kChunks));
  }
  // The address that this lane passes to load(), for fragments from row `row` on, a multiple of 16.
  __device__ __forceinline__ static uint32_t lane_address(uint32_t tile, int row) {
    const uint32_t lane = threadIdx.x % 32;
    return address(tile, row + lane % 16, lane / 16);
  }
  // Loads rows `row` to `row` + 15 of chunks 2 step and 2 step + 1. As operand a, the words are in order. As operand
  // b, words 0 and 2 are the first 8 rows, and words 1 and 3 the others.
  __device__ __forceinline__ static void load(uint32_t (&f)[4], uint32_t lane_address, int row, int step) {
    ldmatrix_x4(f, (lane_address ^ (32 * step)) + row * kRowBytes);
  }
  // The address that this lane passes to load_columns().
  __device__ __forceinline__ static uint32_t column_address(uint32_t tile) {
    const MatrixLane at(threadIdx.x % 32);
    return address(tile, WeightedRows<T>::row_of(at), WeightedRows<T>::chunk_of(at));
  }
  // Loads rows from `row` on, of chunks from `chunk` on, as operand b of WeightedRows.
  __device__ __forceinline__ static void load_columns(uint32_t (&b)[WeightedRows<T>::kLoaded][2],
                                                      uint32_t column_address, int row, int chunk) {
    WeightedRows<T>::load(b, (column_address ^ (16 * chunk)) + row * kRowBytes, kRowBytes);
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

// sums += weights b. The weights are accumulators of mma.sync, and are rounded to T, float32 to TF32. `sums` has the
// columns of tile B from the one of `b_lane` on, in the order of for_each_lane_values().
template <class T, class B, int kBlocks, int kFragments, int kColumnFragments>
__device__ __forceinline__ void multiply_weights(float (&sums)[kBlocks][kColumnFragments][4],
                                                 const float (&weights)[kBlocks][kFragments][4], uint32_t b_lane) {
  using Rows = WeightedRows<T>;
#pragma unroll
  for (int k = 0; k < kFragments; k += Rows::kWeights) {
    uint32_t a[kBlocks][4], b[Rows::kLoaded][2];
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) Rows::round(a[m], &weights[m][k]);
#pragma unroll
    for (int n = 0; n < kColumnFragments; n += Rows::kLoaded) {
      B::load_columns(b, b_lane, 8 * k, n * 8 / B::kOfChunk);
#pragma unroll
      for (int m = 0; m < kBlocks; ++m)
#pragma unroll
        for (int i = 0; i < Rows::kLoaded; ++i) mma_sync<T>(sums[m][n + i], a[m], b[i][0], b[i][1]);
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
    for (int half = 0; half < 2; ++half)
      for_each_lane_values<T>(sums[m], half, [&](int c, int element, const LaneValues<T>& values) {
        LaneValues<T> scaled;
#pragma unroll
        for (int i = 0; i < kLaneColumns<T>; ++i) scaled[i] = values[i] * factor;
        const uint32_t at = Tile::address(tile, row + 16 * m + 8 * half + lane / 4, chunk + c) + element * sizeof(T);
        store_lane_values<T>(memory + (at - base), scaled);
      });
  __syncwarp();
  constexpr int kChunks = 8 * kFragments / Tile::kOfChunk;
#pragma unroll 4
  for (int i = lane; i < 16 * kBlocks * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks;
    uint4 v = ld_shared_v4_b32(Tile::address(tile, row + r, chunk + c));
    if (r >= out.used) v = {0, 0, 0, 0};
    if (r < out.rows && c * Tile::kOfChunk < out.columns) st_global_v4(out.to + r * out.pitch + c * Tile::kOfChunk, v);
  }
}

}  // namespace minidnn
