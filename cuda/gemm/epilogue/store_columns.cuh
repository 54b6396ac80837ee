// SPDX-License-Identifier: Apache-2.0
// GemmStore::columns, phases and transposed: three ways to store sums if adjacent rows of y are adjacent in memory.
#pragma once
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/gemm/epilogue/context.cuh"

namespace minidnn {

// GemmStore::columns. A lane has the sums of 2 * kBlocks adjacent rows, from row m on, which are one vector of each
// column of y. Only the first kSums sums of each block are stored. Eight lanes store the same column, in whole 32-byte
// sectors. c is loaded one iteration ahead.
template <int kSums, int kBlocks, int kCount, class Context>
__device__ __forceinline__ void gemm_store_columns(const Context& e, float (&acc)[kBlocks][kCount], uint32_t m,
                                                   uint32_t n) {
  using Y = typename Context::Y;
  const typename Context::Row side = e.row(m);
  const uint32_t column = n + threadIdx.x % 4 * 2;
  const int left = side.exists ? int(e.output.n_limit) - int(column) : 0;
  // Relative to its first column, a lane has columns 0, 1, 8, 9, 16 ..., so the steps alternate between 1 and 7.
  const int64_t step[2] = {e.output.y_n.of[3], 7 * e.output.y_n.of[3]},
                c_step[2] = {e.output.c_n.of[3], 7 * e.output.c_n.of[3]};
  Y* y = e.y + (side.y + column * step[0]);
  const Y* c = Context::kC && e.c ? e.c + (side.c + column * c_step[0]) : nullptr;
  if (e.alpha != 1)
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) e.scale(acc[b]);
  struct alignas(8 * kBlocks) Vector {
    float row[2 * kBlocks];
  };
  Vector bias{}, of_c[4]{}, of_c_next[4]{};
  if (Context::kBias && side.exists)
#pragma unroll
    for (int r = 0; r < 2 * kBlocks; ++r) bias.row[r] = float(e.bias[side.bias + r * e.output.bias.of[3]]);
  auto load = [&](Vector(&to)[4], int first) {
#pragma unroll
    for (int i = 0; i < 4; c += c_step[i++ % 2])
      if (first + i / 2 * 8 + i % 2 < left) to[i] = *reinterpret_cast<const Vector*>(c);
  };
  if (Context::kC && c) load(of_c, 0);
#pragma unroll
  for (int g = 0; g < kSums / 8; ++g) {
    if (Context::kC && c && g + 1 < kSums / 8) load(of_c_next, 16 * (g + 1));
#pragma unroll
    for (int i = 0; i < 4; y += step[i++ % 2]) {
      Vector v;
#pragma unroll
      for (int r = 0; r < 2 * kBlocks; ++r) {
        float sum = acc[r / 2][8 * g + i / 2 * 4 + r % 2 * 2 + i % 2];
        if (Context::kC) sum += e.beta * of_c[i].row[r];
        if (Context::kBias) sum += bias.row[r];
        v.row[r] = e.activated(sum);
      }
      if (16 * g + i / 2 * 8 + i % 2 < left) *reinterpret_cast<Vector*>(y) = v;
    }
    if (Context::kC)
#pragma unroll
      for (int i = 0; i < 4; ++i) of_c[i] = of_c_next[i];
  }
}

// GemmStore::phases, for one phase of strided backward_data. It is like gemm_store_columns(), but columns have no
// common stride. Each lane computes some column offsets, and shuffles exchange them.
template <int kBlocks, int kCount, class Context>
__device__ __forceinline__ void gemm_store_phases(const Context& e, const float (&acc)[kBlocks][kCount], uint32_t m,
                                                  uint32_t n) {
  static_assert(!Context::kBias && !Context::kC, "backward_data has neither");
  const uint32_t lane = threadIdx.x % 32;
  int offset[kCount / 16];
#pragma unroll
  for (int i = 0; i < kCount / 16; ++i) {
    const GemmCoordinates32 at = coordinates_of(e.output.n_divisor, n + 32 * i + lane);
    bool exists = true;
#pragma unroll
    for (int d = 0; d < kDigits; ++d) exists = exists && at.at[d] < e.bounds.limit[d];
    offset[i] = exists ? int(offset_of(e.output.y_n, at)) : -1;
  }
  struct alignas(8 * kBlocks) Vector {
    float row[2 * kBlocks];
  };
  const bool exists = m < e.output.m.size;
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const int to = __shfl_sync(0xffffffff, offset[j / 8], j / 2 % 4 * 8 + lane % 4 * 2 + j % 2);
    Vector v;
#pragma unroll
    for (int r = 0; r < 2 * kBlocks; ++r) v.row[r] = e.activated(e.alpha * acc[r / 2][j / 2 * 4 + r % 2 * 2 + j % 2]);
    if (exists && to >= 0) *reinterpret_cast<Vector*>(e.y + m + to) = v;
  }
}

// GemmStore::transposed, for a 16-bit y such as NCHW: vectors of four rows are contiguous, and columns have one stride.
// The sums of 64 rows (the first `rows` exist) pass through the shared memory of the warpgroup. Sixteen lanes then
// store a column.
template <int kCount, class Context>
__device__ __forceinline__ void gemm_store_transposed(const Context& e, float (&acc)[kCount], uint32_t m, uint32_t rows,
                                                      uint32_t n,
                                                      const typename Context::template TileBias<kCount>& bias) {
  using Y = typename Context::Y;
  constexpr int kColumns = columns_of_step<Y, Context::kStore, kCount>(), kBlocks = kColumns / 8;
  constexpr int kSteps = 2 * kCount / kColumns;
  static_assert(kCount % 8 == 0);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, column = warp * (kColumns / 4) + lane / 16;
  const typename Context::Row four = e.row(m + lane % 16 * 4);
  const int left = four.exists && lane % 16 * 4 < rows ? int(e.output.n_limit) - int(n + column) : 0;
  const int64_t step_of_y = e.output.y_n.of[3];
  Y* y = e.y + (four.y + (n + column) * step_of_y);
  // A column in shared memory is eight chunks of eight rows. An XOR with column % 8 permutes them against bank
  // conflicts.
  const uint32_t lines = e.buffer - warp * kLinesBytes;
  const uint32_t write_at = lines + (lane / 16 * 8 + lane % 8) * 128 + ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
  const uint32_t read_at = lines + column * 128 + (lane % 16 / 2 ^ column % 8) * 16 + lane % 2 * 8;

  if (e.alpha != 1) e.scale(acc);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    e.wait_for_warpgroup();
#pragma unroll
    for (int j = 0; j < kBlocks; j += 2) {
      auto& v = e.sixteen(acc, kBlocks * step + j);
      if (Context::kBias) bias.add(v, step, j);
#pragma unroll
      for (float& x : v) x = e.activated(x);
      stmatrix_x4_trans(write_at + j * 1024, cvt_rn_x2(Y(), v[0], v[1]), cvt_rn_x2(Y(), v[2], v[3]),
                        cvt_rn_x2(Y(), v[4], v[5]), cvt_rn_x2(Y(), v[6], v[7]));
    }
    e.wait_for_warpgroup();
#pragma unroll
    for (int i = 0; i < kColumns / 4; i += 2, y += 2 * step_of_y) {
      const uint2 words = shared_at<uint2>((read_at ^ i % 8 * 16) + i * 128);
      if (kColumns * step + i < left) *reinterpret_cast<uint2*>(y) = words;
    }
    y += kColumns * 3 / 4 * step_of_y;
  }
}

}  // namespace minidnn
