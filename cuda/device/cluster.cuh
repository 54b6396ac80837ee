// SPDX-License-Identifier: Apache-2.0
// Communication between the blocks of a cluster (sm_90).
#pragma once
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/mbarrier.cuh"

namespace minidnn {

// An all-gather over the blocks of a cluster. Each block contributes the array `mine` of kRows values. Each block
// receives the value mine[row] of block j in of_block[row][j]. `arrived` is an mbarrier that expects one arrival, and
// `parity` is the parity of its current phase.
template <int kRows, int kMaxBlocks>
__device__ __forceinline__ void cluster_all_gather(uint32_t blocks, float4 (&of_block)[kRows][kMaxBlocks],
                                                   uint64_t& arrived, uint32_t parity, const float4 (&mine)[kRows]) {
  const uint32_t barrier = cvta_to_shared(&arrived);
  if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier, blocks * kRows * 16);
  if (threadIdx.x < blocks) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      st_async_cluster(mapa(cvta_to_shared(&of_block[i][cluster_ctarank()]), threadIdx.x), mapa(barrier, threadIdx.x),
                       mine[i].x, mine[i].y, mine[i].z, mine[i].w);
  }
  mbarrier_wait_parity(barrier, parity);
}

}  // namespace minidnn
