// SPDX-License-Identifier: Apache-2.0
// The second pass of a product whose k was split: adds the parts of each element of y in the order of the splits and
// applies the epilogue.
// Block: 256 threads. A place is four columns of a row. kShare threads of a block add the parts of one place, each
// every kShare-th part; their sums are then added through shared memory. kShare > 1 is for small results with many
// parts.
// Bytes: reads every part once.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"
#include "cuda/gemm/epilogue/split_k_params.h"

namespace minidnn {

template <class T, class Y, Activation kActivation, int kShare>
__global__ void __launch_bounds__(256)
    gemm_add_parts(const __grid_constant__ GemmOutput o, const __grid_constant__ GemmArgs args,
                   const __grid_constant__ SplitSums s) {
  constexpr int kPlaces = 256 / kShare;
  __shared__ float4 shared[kShare > 1 ? 256 : 1];
  griddep_wait();
  const int place = threadIdx.x % kPlaces, share = threadIdx.x / kPlaces;
  const uint32_t i = blockIdx.x * kPlaces + place, row = s.columns.quotient(i), n = (i - row * s.columns.divisor) * 4;
  const bool exists = i < s.places;
  float4 sum = {0, 0, 0, 0};
  if (exists) {
    const float4* from = reinterpret_cast<const float4*>(s.parts) + i;
#pragma unroll 4
    for (int part = share; part < s.count; part += kShare) {
      const float4 v = from[part * s.part_stride];
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
  }
  if constexpr (kShare > 1) {
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0) return;
    for (int j = 1; j < kShare; ++j) {
      const float4 v = shared[j * kPlaces + place];
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
    static_cast<Y*>(args.y)[y_row + offset_of(o.y_n, at)] = Y(activate<kActivation>(v, args.activation_alpha));
  }
}

}  // namespace minidnn
