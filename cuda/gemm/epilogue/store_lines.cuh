// SPDX-License-Identifier: Apache-2.0
// GemmStore::lines and GemmStore::summed, for a y whose rows are contiguous in memory. A warp stores 128 neighbouring
// bytes of a row together.
#pragma once
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/gemm/epilogue/context.cuh"

namespace minidnn {

// ColumnSums adds up the values of each column that a lane stores in gemm_store_lines(). `step` is the iteration of
// that function, which determines the columns. NoColumnSums does nothing.
struct NoColumnSums {
  __device__ __forceinline__ void add(int, const uint4&) {}
};
template <class Y, int kSteps> struct ColumnSums {
  static constexpr int kChunk = 16 / int(sizeof(Y));
  float of[2][kSteps][kChunk]{};  // of[0]: sums of values, of[1]: sums of squares

  __device__ __forceinline__ void add(int step, const uint4& words) {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float v;
      if constexpr (sizeof(Y) == 4) {
        v = __uint_as_float(word[i]);
      } else {
        Y y;
        y.bits = uint16_t(word[i / 2] >> i % 2 * 16);
        v = float(y);
      }
      of[0][step][i] += v;
      of[1][step][i] += v * v;
    }
  }
};

// GemmStore::lines: the rows of y are contiguous. A warp stores 128 bytes of a row together. The sums pass through a
// buffer of sixteen rows x 128 bytes. Its rows 0 to 7 are `first` of lanes 0, 4, 8 ..., its rows 8 to 15 are `second`
// of these lanes. A lane then stores 16 bytes in each of four rows. c passes through the same buffer, and is loaded one
// iteration ahead. The 16-byte chunks of a row are permuted by an XOR, which avoids bank conflicts.
template <int kCount, class Sums, class Context>
__device__ __forceinline__ void gemm_store_lines(const Context& e, float (&acc)[kCount], uint32_t first,
                                                 uint32_t second, uint32_t n,
                                                 const typename Context::template TileBias<kCount>& bias, Sums& sums) {
  using Y = typename Context::Y;
  // columns in 128 bytes, and in 16 bytes
  constexpr int kLine = 128 / int(sizeof(Y)), kChunk = 16 / int(sizeof(Y));
  constexpr int kBlocks = kLine / 8, kSteps = (2 * kCount + kLine - 1) / kLine;
  static_assert(kCount % 8 == 0);
  const uint32_t lane = threadIdx.x % 32, of_four = lane / 8;
  const uint32_t firsts = __shfl_sync(~0u, first, lane % 8 * 4), seconds = __shfl_sync(~0u, second, lane % 8 * 4);
  const typename Context::Row mine = e.row(lane & 8 ? seconds : firsts);
  const uint32_t exist = __ballot_sync(~0u, mine.exists);
  const int column = int(n + lane % 8 * kChunk),
            left = min_of(int(e.output.n_limit) - column, 2 * kCount - int(lane % 8 * kChunk));
  Y* y[4];
  const Y* c[4];
  bool there[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = e.y + (__shfl_sync(~0u, mine.y, 4 * i + of_four) + column);
    if (Context::kC) c[i] = e.c + (__shfl_sync(~0u, mine.c, 4 * i + of_four) + column);
    there[i] = exist >> (4 * i + of_four) & 1;
  }
  auto chunk_address = [&](uint32_t slot, uint32_t chunk) {
    return e.buffer + slot * 128 + (chunk ^ (slot % 4 * 2 | slot / 4 % 2)) * 16;
  };
  const uint32_t write_at =
      sizeof(Y) == 2 ? chunk_address(lane % 16, lane / 16) : chunk_address(lane / 4, lane % 4 / 2) + lane % 2 * 8;
  const uint32_t read_at = chunk_address(of_four, lane % 8);
  auto line = [&](int i) -> uint4& { return shared_at<uint4>((read_at ^ i % 2 * 16) + i * 512); };
  auto pair = [&](int block, int r) -> float2& { return shared_at<float2>((write_at ^ block * 32) + r * 1024); };

  if (e.alpha != 1) e.scale(acc);
  uint4 c_line[4] = {};
  auto load_c = [&](int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (e.c && there[i] && kLine * step < left) c_line[i] = *reinterpret_cast<const uint4*>(c[i] + kLine * step);
  };
  if (Context::kC) load_c(0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (Context::kC) {
      // Each lane overwrites only bytes that the lane itself has read last, so no barrier is needed.
#pragma unroll
      for (int i = 0; i < 4; ++i) line(i) = c_line[i];
      __syncwarp();
      if (step + 1 < kSteps) load_c(step + 1);
#pragma unroll
      for (int j = 0; j < kBlocks && kBlocks * step + j < kCount / 4; j += 2) {
        auto& v = e.sixteen(acc, kBlocks * step + j);
        if constexpr (sizeof(Y) == 4) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 two = pair(j + i / 2, i % 2);
            v[2 * i] += e.beta * two.x;
            v[2 * i + 1] += e.beta * two.y;
          }
        } else {
          uint32_t words[4];
          ldmatrix_x4(words, write_at ^ j * 16);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            Y of_c;
            of_c.bits = uint16_t(words[i / 2] >> i % 2 * 16);
            v[i] += e.beta * float(of_c);
          }
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kBlocks && kBlocks * step + j < kCount / 4; j += 2) {
      auto& v = e.sixteen(acc, kBlocks * step + j);
      if (Context::kBias) bias.add(v, step, j);
#pragma unroll
      for (float& x : v) x = e.activated(x);
      if constexpr (sizeof(Y) == 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) pair(j + i / 2, i % 2) = make_float2(v[2 * i], v[2 * i + 1]);
      } else {
        stmatrix_x4(write_at ^ j * 16, cvt_rn_x2(Y(), v[0], v[1]), cvt_rn_x2(Y(), v[2], v[3]),
                    cvt_rn_x2(Y(), v[4], v[5]), cvt_rn_x2(Y(), v[6], v[7]));
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 words = line(i);
      if (there[i] && kLine * step < left) {
        *reinterpret_cast<uint4*>(y[i] + kLine * step) = words;
        sums.add(step, words);
      }
    }
  }
}

// A reduce-scatter over two lanes whose indices differ by kLanes: of 2 * kHalf sums, one lane gets the first half and
// the other the second half.
template <int kLanes, int kHalf>
__device__ __forceinline__ static void add_halves(float* v, uint32_t second) {
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float others = second ? v[i] : v[kHalf + i];
    v[i] = (second ? v[kHalf + i] : v[i]) + __shfl_xor_sync(~0u, others, kLanes);
  }
}

// GemmStore::summed: stores y like gemm_store_lines(), and sums each column over the rows of a warpgroup into row
// `slot` of args.sums. It sums the values rounded to the dtype of y, in a fixed order. `m` is the lane's first row.
template <int kSums, int kBlocks, int kCount, class Context>
__device__ __forceinline__ void gemm_store_summed(const Context& e, float (&acc)[kBlocks][kCount], uint32_t m,
                                                  uint32_t n, const typename Context::template TileBias<kSums>& bias,
                                                  uint32_t slot) {
  using Y = typename Context::Y;
  constexpr int kLine = 128 / int(sizeof(Y)), kColumns = 2 * kSums, kSteps = (kColumns + kLine - 1) / kLine;
  static_assert(2 * kColumns * 4 <= kLinesBytes);
  ColumnSums<Y, kSteps> sums;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
    gemm_store_lines(e, reinterpret_cast<float(&)[kSums]>(acc[b]), m + 64 * b, m + 64 * b + 8, n, bias, sums);

  constexpr int kChunk = sums.kChunk;
  const uint32_t lane = threadIdx.x % 32, thread = threadIdx.x % 128, second = lane / 16, odd = lane / 8 % 2;
  // All lanes have read y from the buffer, which is then used for column sums.
  __syncwarp();
#pragma unroll
  for (int which = 0; which < 2; ++which)
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // A reduce-scatter over the four lanes that have sums of the same columns, in two steps.
      float(&v)[kChunk] = sums.of[which][step];
      add_halves<16, kChunk / 2>(v, second);
      add_halves<8, kChunk / 4>(v, odd);
      const uint32_t column = step * kLine + lane % 8 * kChunk + second * (kChunk / 2) + odd * (kChunk / 4);
#pragma unroll
      for (int i = 0; i < kChunk / 4; ++i)
        if (column < kColumns) shared_at<float>(e.buffer + (which * kColumns + column + i) * 4) = v[i];
    }
  e.wait_for_warpgroup();
  const uint32_t all = e.buffer - thread / 32 * kLinesBytes, which = 4 * thread / kColumns,
                 column = 4 * thread - which * kColumns;
  if (which < 2 && n + column < uint32_t(e.output.n_limit)) {
    float4 sum = shared_at<float4>(all + thread * 16);
#pragma unroll
    for (int warp = 1; warp < 4; ++warp) {
      const float4 v = shared_at<float4>(all + warp * kLinesBytes + thread * 16);
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
    *reinterpret_cast<float4*>(e.column_sums + (slot * int64_t(2) + which) * e.output.n_limit + n + column) = sum;
  }
  // The next tile overwrites the buffer.
  e.wait_for_warpgroup();
}

}  // namespace minidnn
