// SPDX-License-Identifier: Apache-2.0
// The power by which local response and local contrast norm divide.
#pragma once
#include "cuda/device/fast_math.cuh"

namespace minidnn {

// s^-beta; s below 2^-126 counts as 0. float32: the approximate logarithm has an absolute error, so the exponent of s
// is split off and multiplied by beta on its own, unless s is 0, infinite or NaN.
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
