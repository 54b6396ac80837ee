// SPDX-License-Identifier: Apache-2.0
// Stores the partial result of a block for cross-entropy: the sum of the losses of the block's rows, and the number of
// those rows that are not ignored.
#pragma once
#include "cuda/device/reduce.cuh"

namespace minidnn {

// Adds up `sum` and `count` over the threads of a block, and stores both as pair blockIdx.x of `sums`. All threads must
// call this function, and only once per kernel.
template <class Acc> __device__ void store_block_sums(Acc sum, Acc count, Acc* sums) {
  __shared__ Acc of_warp[32][2];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += shuffle_down(sum, offset);
    count += shuffle_down(count, offset);
  }
  if (threadIdx.x % 32 == 0) {
    of_warp[threadIdx.x / 32][0] = sum;
    of_warp[threadIdx.x / 32][1] = count;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < int(blockDim.x) / 32; ++w) {
    sum += of_warp[w][0];
    count += of_warp[w][1];
  }
  sums[2 * int64_t(blockIdx.x)] = sum;
  sums[2 * int64_t(blockIdx.x) + 1] = count;
}

}  // namespace minidnn
