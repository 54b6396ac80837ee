// SPDX-License-Identifier: Apache-2.0
// GemmStore::boxes, for a y whose rows are contiguous in memory and have one stride. TMA stores the sums (sm_90), so
// that the warps that multiply spend little time on it.
#pragma once
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/gemm/epilogue/context.cuh"

namespace minidnn {

// Stores the sums of sixteen rows, from row m on, in 2 * kCount columns. The sums pass through a buffer of sixteen rows x
// 128 bytes in the 128-byte swizzle of TMA: the 16-byte chunk i of row r is at chunk i ^ r % 8. Lane 0 starts a copy of
// the buffer for each 128 bytes of the columns. Rows and columns outside of y are not stored.
template <int kCount, class Context>
__device__ __forceinline__ void gemm_store_boxes(const Context& e, const TensorMap* map, float (&acc)[kCount],
                                                 uint32_t m, uint32_t n, uint32_t batch,
                                                 const typename Context::template TileBias<kCount>& bias) {
  using Y = typename Context::Y;
  constexpr int kLine = columns_of_step<Y, Context::kStore, kCount>(), kBlocks = kLine / 8;
  static_assert(2 * kCount % kLine == 0 && !Context::kC);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t row = sizeof(Y) == 2 ? lane % 16 : lane / 4, chunk = sizeof(Y) == 2 ? lane / 16 : lane % 4 / 2;
  const uint32_t write_at = e.buffer + row * 128 + (chunk ^ row % 8) * 16 + (sizeof(Y) == 2 ? 0 : lane % 2 * 8);

  if (e.alpha != 1) e.scale(acc);
#pragma unroll
  for (int step = 0; step < 2 * kCount / kLine; ++step) {
    float(&v)[4 * kBlocks] = reinterpret_cast<float(&)[4 * kBlocks]>(acc[4 * kBlocks * step]);
    uint32_t words[2 * kBlocks];
    if (Context::kBias) bias.add(v, step, 0);
#pragma unroll
    for (int i = 0; i < 4 * kBlocks; ++i) v[i] = e.activated(v[i]);
    if constexpr (sizeof(Y) == 2)
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) words[i] = cvt_rn_x2(Y(), v[2 * i], v[2 * i + 1]);
    // TMA has read the previous box.
    if (lane == 0) cp_async_bulk_wait_group_read<0>();
    __syncwarp();
    if constexpr (sizeof(Y) == 2) {
#pragma unroll
      for (int i = 0; i < kBlocks / 2; ++i)
        stmatrix_x4(write_at ^ i * 32, words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i)
        shared_at<float2>((write_at ^ i / 2 * 32) + i % 2 * 1024) = make_float2(v[2 * i], v[2 * i + 1]);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      tma_store(map, e.buffer, {int(n) + kLine * step, int(m), int(batch)});
      cp_async_bulk_commit_group();
    }
  }
}

// Waits until TMA has read all boxes of the warp. A warp calls this before it exits, after its last store.
__device__ __forceinline__ void gemm_wait_for_boxes() {
  if (threadIdx.x % 32 == 0) cp_async_bulk_wait_group_read<0>();
}

}  // namespace minidnn
