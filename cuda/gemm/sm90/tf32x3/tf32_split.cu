// SPDX-License-Identifier: Apache-2.0
// gemm_tf32_split: splits each float32 number into two TF32 numbers. One is the number rounded to TF32; the other is
// the rounding error, which is rounded to TF32, too. The sum of both TF32 numbers equals the float32 number up to a
// relative error of 2^-22. The kernel writes three terms as an operand of a product with three times as many values of
// k (three_tf32.h): one term is the rounding error, and the other two terms are the rounded number.
// Block: 256 threads; each thread splits one vector, or one element.
// Bytes: reads each number once, and writes three numbers for it.
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/gemm/sm90/tf32x3/tf32_split_params.h"

namespace minidnn {

__device__ __forceinline__ float tf32_of(float v) { return __uint_as_float(cvt_rna_tf32(v)); }

template <int kWidth>
__global__ void __launch_bounds__(256)
    gemm_tf32_split(const __grid_constant__ Tf32SplitParams p, const float* x, float* y) {
  struct alignas(4 * kWidth) Vector {
    float of[kWidth];
  };
  uint32_t i = blockIdx.x * 256 + threadIdx.x;
  griddep_wait();
  if (i >= p.items) return;
#pragma unroll
  for (int d = 0; d < kTf32Dimensions; ++d) {
    const int64_t at = p.size[d].divmod(i) * int64_t(d == 0 ? kWidth : 1);
    x += at * p.x[d];
    y += at * p.y[d];
  }
  const Vector whole = *reinterpret_cast<const Vector*>(x);
  // Inf and NaN are in term 0 only. In all terms, they would give Inf - Inf or Inf * 0, which are NaN.
  Vector kept, finite, rest;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    kept.of[e] = tf32_of(whole.of[e]);
    const bool is_finite = (__float_as_uint(kept.of[e]) & 0x7f800000) != 0x7f800000;
    finite.of[e] = is_finite ? kept.of[e] : 0;
    rest.of[e] = is_finite ? tf32_of(whole.of[e] - kept.of[e]) : 0;
  }
#pragma unroll
  for (int term = 0; term < 3; ++term)
    *reinterpret_cast<Vector*>(y + term * p.term_stride) = term == 0 ? kept : term == p.rest_term ? rest : finite;
}

}  // namespace minidnn
