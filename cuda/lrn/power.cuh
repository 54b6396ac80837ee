// SPDX-License-Identifier: Apache-2.0
// Computes the power s^-beta, by which local response norm and local contrast norm multiply.
#pragma once
#include "cuda/device/fast_math.cuh"

namespace minidnn {

// Computes s^-beta as 2^(-beta log2(s)). If s is below 2^-126, it counts as 0. For float32 results, the exponent of s
// is multiplied by beta separately, because the absolute error of the approximate logarithm would be too large.
template <class T> __device__ __forceinline__ float power_of(float s, float beta) {
  int32_t exponent = 0;
  if (sizeof(T) == 4 && s >= 0x1p-126f && s < INFINITY)
    exponent = (__float_as_int(s) - 0x3f400000) & int32_t(0xff800000);
  float log2 = fast::log2_ftz(__int_as_float(__float_as_int(s) - exponent));
  if constexpr (sizeof(T) == 4) log2 = float(exponent >> 23) * beta + log2 * beta;
  else log2 *= beta;
  return fast::exp2_ftz(-log2);
}

}  // namespace minidnn
