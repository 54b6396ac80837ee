// SPDX-License-Identifier: Apache-2.0
// Adds up the partial results of dscale and dbias of a layer norm, in float64.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/layer_norm/persistent_rows_params.h"
#include "cuda/norm/moments.cuh"

namespace minidnn {

// Adds up `count` partial results of dscale and dbias, in float64. A block computes 32 columns, and each of its 16
// warps adds up every 16th partial result. The kernel is a template so that it is compiled only if it is used.
template <int kUnused>
__global__ void __launch_bounds__(kJoinThreads)
    layer_norm_parameter_sums(int64_t columns, int64_t count, const float2* partials, float* dscale, float* dbias) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = int64_t(blockIdx.x) * kJoinChannels + lane;
  Gradients<double> total{};
  griddep_wait();
  if (column < columns) {
#pragma unroll 8
    for (int64_t i = warp; i < count; i += kJoinWarps) {
      const float2 some = partials[i * columns + column];
      total.join({double(some.y), double(some.x)});
    }
  }
  total = join_warps(total);
  if (warp != 0 || column >= columns) return;
  dscale[column] = float(total.product);
  if (dbias) dbias[column] = float(total.dy);
}

// Adds up `count` partial results of dscale and dbias, in float64, if there are at most 16 of them. A thread computes a
// column.
template <int kUnused>
__global__ void __launch_bounds__(kFewSumsThreads)
    layer_norm_few_parameter_sums(int64_t columns, int64_t count, const float2* partials, float* dscale, float* dbias) {
  const int64_t column = int64_t(blockIdx.x) * kFewSumsThreads + threadIdx.x;
  if (column >= columns) return;
  Gradients<double> total{};
  griddep_wait();
#pragma unroll 8
  for (int64_t i = 0; i < count; ++i) {
    const float2 some = partials[i * columns + column];
    total.join({double(some.y), double(some.x)});
  }
  dscale[column] = float(total.product);
  if (dbias) dbias[column] = float(total.dy);
}

}  // namespace minidnn
