// SPDX-License-Identifier: Apache-2.0
// GemmStore::lines and GemmStore::summed, for a y whose rows are contiguous in memory. A warp stores 128 neighbouring
// bytes of a row together.
#pragma once
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/gemm/epilogue/context.cuh"

namespace minidnn {

// ColumnSums adds up, for each column, the values that a lane stores in gemm_store_lines(). `step` is the index of the
// iteration of that function. In one iteration, a lane stores the same columns (16 bytes) of each of its rows.
// NoColumnSums has the same interface and does nothing.
struct NoColumnSums {
  __device__ __forceinline__ void add(int, const uint4&) {}
};
template <class Y, int kSteps> struct ColumnSums {
  static constexpr int kChunk = 16 / int(sizeof(Y));
  float of[2][kSteps][kChunk]{};  // of[0] are the sums of the values, of[1] the sums of the squared values

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

// GemmStore::lines: the rows of y are contiguous in memory, and a warp stores 128 neighbouring bytes of a row together.
// The sums pass through a buffer in shared memory that has 128 bytes for each of sixteen rows. Each lane then stores 16
// bytes in each of four rows. c passes through the same buffer; it is loaded one iteration before it is added.
// Rows 0 to 7 of the buffer are the rows `first` of lanes 0, 4, 8 and so on to 28. Rows 8 to 15 are the rows `second`
// of these lanes. Each lane computes the offsets of one row, and the lanes exchange these offsets by shuffles.
// In row r of the buffer, the 16-byte chunk i is stored at position i ^ (r % 4 * 2 | r / 4 % 2). This order avoids bank
// conflicts for stmatrix and for accesses by float2 and uint4.
template <int kCount, class Sums, class Context>
__device__ __forceinline__ void gemm_store_lines(const Context& e, float (&acc)[kCount], uint32_t first,
                                                 uint32_t second, uint32_t n, Sums& sums) {
  using T = typename Context::T;
  using Y = typename Context::Y;
  // kLine is the number of columns in 128 bytes, kChunk the number of columns in 16 bytes.
  constexpr int kLine = 128 / int(sizeof(Y)), kChunk = 16 / int(sizeof(Y));
  constexpr int kBlocks = kLine / 8, kSteps = (2 * kCount + kLine - 1) / kLine;
  static_assert(kCount % 8 == 0);
  const uint32_t lane = threadIdx.x % 32, of_four = lane / 8;
  const uint32_t firsts = __shfl_sync(~0u, first, lane % 8 * 4), seconds = __shfl_sync(~0u, second, lane % 8 * 4);
  const typename Context::Row mine = e.row(lane & 8 ? seconds : firsts);
  const uint32_t exist = __ballot_sync(~0u, mine.exists);
  const int column = int(n + lane % 8 * kChunk),
            left = min_of(int(e.output.n_limit) - column, 2 * kCount - int(lane % 8 * kChunk));
  const T* const bias = Context::kBias ? e.bias + (n + lane % 4 * 2) : nullptr;
  const int bias_left = int(e.output.n_limit) - int(n + lane % 4 * 2);
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
      // Stores c to the bytes of shared memory that this lane itself has read last. No barrier is therefore needed
      // before this store.
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
      if (Context::kBias) e.add_bias(v, bias + kLine * step + 8 * j, bias_left - kLine * step - 8 * j);
#pragma unroll
      for (float& x : v) x = activate<Context::kActivation>(x, e.activation_alpha);
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

// A reduce-scatter over two lanes whose indices differ by kLanes. Each lane has 2 * kHalf values. Value i of one lane
// is added to value i of the other lane. One lane receives the first kHalf sums, the other lane the last kHalf sums.
template <int kLanes, int kHalf>
__device__ __forceinline__ static void add_halves(float* v, uint32_t second) {
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float others = second ? v[i] : v[kHalf + i];
    v[i] = (second ? v[kHalf + i] : v[i]) + __shfl_xor_sync(~0u, others, kLanes);
  }
}

// GemmStore::summed: stores y like gemm_store_lines(), and adds up each column over the rows of a warpgroup. It adds
// the values after they are rounded to the dtype of y, in this order: first the rows of a lane, then the four lanes
// with the same columns, then the four warps. The result is row `slot` of args.sums. `m` is the lane's first row. The
// warpgroup has kBlocks blocks of 64 rows.
template <int kSums, int kBlocks, int kCount, class Context>
__device__ __forceinline__ void gemm_store_summed(const Context& e, float (&acc)[kBlocks][kCount], uint32_t m,
                                                  uint32_t n, uint32_t slot) {
  using Y = typename Context::Y;
  constexpr int kLine = 128 / int(sizeof(Y)), kColumns = 2 * kSums, kSteps = (kColumns + kLine - 1) / kLine;
  static_assert(2 * kColumns * 4 <= kLinesBytes);
  ColumnSums<Y, kSteps> sums;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
    gemm_store_lines(e, reinterpret_cast<float(&)[kSums]>(acc[b]), m + 64 * b, m + 64 * b + 8, n, sums);

  constexpr int kChunk = sums.kChunk;
  const uint32_t lane = threadIdx.x % 32, thread = threadIdx.x % 128, second = lane / 16, odd = lane / 8 % 2;
  // After this barrier, all lanes have read the values of y from the buffer. The buffer is then used for column sums.
  __syncwarp();
#pragma unroll
  for (int which = 0; which < 2; ++which)
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // A reduce-scatter over four lanes that have sums of the same columns (16 bytes of y). First, of two lanes whose
      // indices differ by 16, each keeps half of the columns. Then, of two lanes whose indices differ by 8, each keeps
      // half of its remaining columns.
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
  // After this barrier, all threads have read the column sums, and the next tile may overwrite the buffer.
  e.wait_for_warpgroup();
}

}  // namespace minidnn
