// SPDX-License-Identifier: Apache-2.0
// Elementary functions that take a few instructions. They are for results that are rounded to 16 bits, and for the
// terms of sums. Unless a comment says otherwise, the error bounds in this file are relative errors. Tests compile this
// file for the host, too.
#pragma once
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/normal_polynomial.h"

#ifdef __CUDACC__
#include "cuda/device/ptx/math.cuh"
#endif

namespace minidnn::fast {

constexpr float kLog2E = 1.44269504f;

// 2^x with a relative error of at most 2^-22. exp2_ftz() returns 0 if 2^x is below 2^-126.
MINIDNN_HD float exp2(float x) {
#ifdef __CUDA_ARCH__
  return ex2_approx(x);
#else
  return ::exp2f(x);
#endif
}
MINIDNN_HD float exp2_ftz(float x) {
#ifdef __CUDA_ARCH__
  return ex2_approx_ftz(x);
#else
  const float power = ::exp2f(x);
  return power < 0x1p-126f ? 0 : power;
#endif
}
// 2^x, for a result that is rounded to T. Values below 2^-126 become 0 only if T cannot represent them. The smallest
// positive bfloat16 is 2^-133.
template <class T> MINIDNN_HD float exp2_in(float x) { return exp2_ftz(x); }
template <> MINIDNN_HD float exp2_in<bfloat16>(float x) { return exp2_ftz(x + 24) * 0x1p-24f; }

// The base-2 logarithm of x, for x >= 2^-126. The absolute error is at most 2^-22 for x between 0.5 and 2. For all
// other x, the relative error is at most 2^-22.
MINIDNN_HD float log2_ftz(float x) {
#ifdef __CUDA_ARCH__
  return lg2_approx_ftz(x);
#else
  return ::log2f(x);
#endif
}

// 1 / x with an error of at most 1 ulp. The result is 0 if x is above 2^126.
MINIDNN_HD float reciprocal_ftz(float x) {
#ifdef __CUDA_ARCH__
  return rcp_approx_ftz(x);
#else
  return x > 0x1p126f ? 0 : 1 / x;
#endif
}

// exp(x) for x <= 0, for a result that is rounded to T. For 16-bit types T, the relative error is at most 2^-15.
template <class T> MINIDNN_HD float exp_of_negative(float x) {
  if constexpr (sizeof(T) == 4) return maths::exp_of_negative(x);
  else return exp2_in<T>(x * kLog2E);
}
// exp(x) for x <= 0, as a term of a sum that is at least 1. For 16-bit types T, terms below 2^-126 become 0.
template <class T> MINIDNN_HD float exp_of_negative_ftz(float x) {
  if constexpr (sizeof(T) == 4) return maths::exp_of_negative(x);
  else return exp2_ftz(x * kLog2E);
}

// tanh(x), and sech2(x), with a relative error of at most 2^-19. The relative error of x * normal(x).cdf (GELU) is at
// most 2^-19 * (1 + x^2 / 2).
MINIDNN_HD float tanh(float x) {
  const float a = ::fabsf(x), square = x * x;
  const float e = exp2_ftz(-2 * kLog2E * a);
  const float large = (1 - e) * reciprocal_ftz(1 + e), small = a - a * square * (1.0f / 3 - square * (2.0f / 15));
  return ::copysignf(a < 0.1f ? small : large, x);
}
// sech(x)^2, which is 1 - tanh(x)^2
MINIDNN_HD float sech2(float x) {
  const float e = exp2(-2 * kLog2E * ::fabsf(x)), r = reciprocal_ftz(1 + e);
  return 4 * e * (r * r);
}
// The cumulative distribution and the density of the normal distribution at x. This function is shorter and less exact
// than elementary::normal() (cpp/core/host_device/elementary.h): it omits the steps that correct the last bits of the
// result.
MINIDNN_HD maths::Normal<float> normal(float x) {
  const float e = exp2(-0.5f * kLog2E * x * x), a = ::fabsf(x);
  const float u = reciprocal_ftz((a > 15 ? 15 : a) + 3) - 0.1875f;
  const float below = normal_polynomial(u) * e;
  return {x < 0 ? below : 1 - below, e * 0.398942280f};
}

}  // namespace minidnn::fast
