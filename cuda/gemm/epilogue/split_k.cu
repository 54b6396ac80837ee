// SPDX-License-Identifier: Apache-2.0
// gemm_split_k_reduce, the second kernel of a matrix product whose k is split. It adds up the sums of all partitions
// (splits of k) in a fixed order, and applies the epilogue. Block: 256 threads. kThreadsOfQuad threads (8 for a small y
// with many partitions, else 1) add up a quad, which is four columns of a row. Each adds every kThreadsOfQuad-th
// partition; shared memory then adds their sums. Bytes: reads every partition once, and writes y once.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"
#include "cuda/gemm/epilogue/split_k_params.h"

namespace minidnn {

template <class T, class Y, Activation kActivation, int kThreadsOfQuad>
__global__ void __launch_bounds__(256)
    gemm_split_k_reduce(const __grid_constant__ GemmOutput o, const __grid_constant__ GemmArgs args,
                        const __grid_constant__ SplitKPartitions s) {
  constexpr int kQuads = 256 / kThreadsOfQuad;
  __shared__ float4 shared[kThreadsOfQuad > 1 ? 256 : 1];
  griddep_wait();
  const int quad = threadIdx.x % kQuads, first = threadIdx.x / kQuads;
  const uint32_t i = blockIdx.x * kQuads + quad, row = s.columns.quotient(i), n = (i - row * s.columns.divisor) * 4;
  const bool exists = i < s.quads;
  float4 sum = {0, 0, 0, 0};
  if (exists) {
    const float4* from = reinterpret_cast<const float4*>(s.sums) + i;
#pragma unroll 4
    for (int partition = first; partition < s.count; partition += kThreadsOfQuad) {
      const float4 v = from[partition * s.partition_stride];
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
  }
  if constexpr (kThreadsOfQuad > 1) {
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (first > 0) return;
    for (int j = 1; j < kThreadsOfQuad; ++j) {
      const float4 v = shared[j * kQuads + quad];
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
  }
  if (!exists) return;
  const uint32_t batch = s.rows.quotient(row), m = row - batch * s.rows.divisor;
  const GemmCoordinates32 at_batch = coordinates_of(o.batch_divisor, batch);
  const GemmCoordinates32 at_m = coordinates_of(o.m_divisor, m);
  const int64_t y_row = o.bounds.y_offset + offset_of(o.y_batch, at_batch) + offset_of(o.y_m, at_m);
  const int64_t c_row = offset_of(o.c_batch, at_batch) + offset_of(o.c_m, at_m);
  const int64_t bias_row = offset_of(o.bias_batch, at_batch) + (o.bias_by_row ? offset_of(o.bias, at_m) : 0);
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const GemmCoordinates32 at = coordinates_of(o.n_divisor, n + j);
    if (n + j >= o.n.size || at.at[kDigits - 1] >= o.n_limit) continue;
    float v = args.alpha * sums[j];
    if (args.c) v += args.beta * float(static_cast<const Y*>(args.c)[c_row + offset_of(o.c_n, at)]);
    if (args.bias) v += float(static_cast<const T*>(args.bias)[bias_row + (o.bias_by_row ? 0 : offset_of(o.bias, at))]);
    static_cast<Y*>(args.y)[y_row + offset_of(o.y_n, at)] =
        Y(activate<kActivation, formula_of<Y>()>(v, args.activation_alpha));
  }
}

}  // namespace minidnn
