// SPDX-License-Identifier: Apache-2.0
// The power s^-beta by which local response and local contrast norm multiply.
#pragma once
#include "cuda/device/fast_math.cuh"

namespace minidnn {

// Computes s^-beta. An s below 2^-126 counts as 0. In float32, the absolute error of the approximate logarithm would be
// too large. So the exponent of s is split off and multiplied by beta separately, unless s is 0, infinite or NaN.
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
