// SPDX-License-Identifier: Apache-2.0
// The end of a product whose k was split: adds the parts of each element of y in their order and applies the epilogue.
// A block of 32 x 8 threads: four columns a thread along x; the parts are dealt out along y and added through shared
// memory.
#include "cuda/gemm/split_k.h"
#include "cuda/gemm/view.h"

namespace minidnn {

template <class T, class Y, Activation kActivation>
__global__ void __launch_bounds__(256)
    gemm_add_parts(const __grid_constant__ GemmOutput o, const GemmArgs args, const SplitSums s) {
  __shared__ float4 shared[8][32];
  const int64_t n = (int64_t(blockIdx.x) * 32 + threadIdx.x) * 4, row = blockIdx.y + int64_t(blockIdx.z) * gridDim.y;
  const int64_t batch = row / o.m.size, m = row - batch * o.m.size;
  if (row >= o.m.size * o.batch.size) return;
  float4 sum = {0, 0, 0, 0};
  if (n < o.n.size) {
    const float* from = s.parts + row * s.columns + n;
#pragma unroll 4
    for (int i = threadIdx.y; i < s.count; i += 8) {
      const float4 part = *reinterpret_cast<const float4*>(from + i * s.part_stride);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (int i = 1; i < 8; ++i) {
    const float4 part = shared[i][threadIdx.x];
    sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
  }
  const GemmDigits at_batch = digits_of(o.batch, batch), at_m = digits_of(o.m, m);
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  const int64_t y_row = o.part.y_offset + offset_of(o.y_batch, at_batch) + offset_of(o.y_m, at_m);
  const int64_t c_row = offset_of(o.c_batch, at_batch) + offset_of(o.c_m, at_m);
  for (int i = 0; i < 4; ++i) {
    const GemmDigits at_n = digits_of(o.n, n + i);
    if (n + i >= o.n.size || at_n.at[kDigits - 1] >= o.n_limit) continue;
    float v = args.alpha * sums[i];
    if (args.c) v += args.beta * float(static_cast<const Y*>(args.c)[c_row + offset_of(o.c_n, at_n)]);
    if (args.bias)
      v += float(static_cast<const T*>(
          args.bias)[offset_of(o.bias_batch, at_batch) + offset_of(o.bias, o.bias_by_row ? at_m : at_n)]);
    static_cast<Y*>(args.y)[y_row + offset_of(o.y_n, at_n)] = Y(activate<kActivation>(v, args.activation_alpha));
  }
}

}  // namespace minidnn
