// SPDX-License-Identifier: Apache-2.0
// Computes dw by adding its partial sums. nchw_filter.cu, nhwc.cu or first_layer_filter.cu has written them: one
// partial sum for each split (a subset of the tiles of dy).
// Grid: one block for each 32 elements of dw. Block: 32 x 8 threads. Thread (i, j) adds the partial sums j, j + 8, j +
// 16 ... of element i. Then thread (i, 0) adds the sums of the eight threads (i, j). Shared memory: 1 KiB, static.
// Numerics: float32; the partial sums of an element are added in a fixed order.
#include "cuda/conv/filter_reduce/filter_reduce_params.h"
#include "cuda/device/ptx/griddep.cuh"

namespace minidnn {

template <class Y>
__global__ void __launch_bounds__(256)
    conv_filter_reduce(const __grid_constant__ FilterReduce f, const float* partial_sums, Y* dw) {
  __shared__ float shared[8][32];
  const int64_t i = int64_t(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  griddep_wait();
  if (i < f.count) {
#pragma unroll 8
    for (int split = threadIdx.y; split < f.splits; split += 8) sum += partial_sums[split * f.count + i];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= f.count) return;
  for (int y = 1; y < 8; ++y) sum += shared[y][threadIdx.x];
  const NdIterator<2 + kMaxSpatial> at(f.size, i);
  int64_t to = f.origin;
  for (int d = 0; d < 2 + kMaxSpatial; ++d) to += at.at[d] * f.stride[d];
  dw[to] = Y(sum);
}

}  // namespace minidnn
