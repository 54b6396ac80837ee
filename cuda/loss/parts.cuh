// SPDX-License-Identifier: Apache-2.0
// What the rows of a block add to the loss: their sum, and how many of them count.
#pragma once
#include "cpp/core/hd.h"

namespace minidnn {

// To the block's place among the parts, from what its threads have: blocks of whole warps, all of their threads, once.
template <class Acc> __device__ void put_part(Acc sum, Acc count, Acc* parts) {
  __shared__ Acc of_warp[32][2];
  for (int offset = 16; offset > 0; offset /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, offset), count += __shfl_down_sync(0xffffffff, count, offset);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][0] = sum, of_warp[threadIdx.x / 32][1] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < int(blockDim.x) / 32; ++w) sum += of_warp[w][0], count += of_warp[w][1];
  parts[2 * int64_t(blockIdx.x)] = sum, parts[2 * int64_t(blockIdx.x) + 1] = count;
}

}  // namespace minidnn
