// SPDX-License-Identifier: Apache-2.0
// Activation formulas: the shared ones, and shorter ones for 16-bit results. At copy speed an SM can issue about 38
// instructions per element forward and 57 backward, and erfc alone takes 40. The errors below are relative, in float32;
// float16 has 2^-11.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/device/ptx/math.cuh"

namespace minidnn {

namespace approx_16bit {

constexpr float kLog2E = 1.44269504f;

// The error is within 2^-19. So are the errors of sech2(x) and of x * normal(x).cdf / (1 + x^2 / 2).
__device__ __forceinline__ float tanh(float x) {
  const float a = fabsf(x), square = x * x;
  const float e = ex2_approx(-2 * kLog2E * a);
  const float large = (1 - e) * rcp_approx_ftz(1 + e), small = a - a * square * (1.0f / 3 - square * (2.0f / 15));
  return copysignf(a < 0.1f ? small : large, x);
}
__device__ __forceinline__ float sech2(float x) {
  const float e = ex2_approx(-2 * kLog2E * fabsf(x)), r = rcp_approx_ftz(1 + e);
  return 4 * e * (r * r);
}

// The polynomial of elementary::normal (cpp/core/elementary.h), without the steps that make its last bits right.
__device__ __forceinline__ maths::Normal<float> normal(float x) {
  const float e = ex2_approx(-0.5f * kLog2E * x * x), a = fabsf(x);
  const float u = rcp_approx_ftz((a > 15 ? 15 : a) + 3) - 0.1875f;
  float p = -0x1.0c195ep+9f * u + 0x1.71cc54p+6f;
  p = p * u + 0x1.dae172p+6f;
  p = p * u - 0x1.e15e22p+4f;
  p = p * u - 0x1.b5e488p+4f;
  p = p * u + 0x1.54fd86p+2f;
  p = p * u + 0x1.513ca2p+3f;
  p = p * u + 0x1.45065ap+2f;
  p = p * u + 0x1.6fbf82p+0f;
  p = p * u + 0x1.31d4a0p-3f;
  const float below = p * e;
  return {x < 0 ? below : 1 - below, e * 0.398942280f};
}

}  // namespace approx_16bit

template <Activation mode, bool short_result> struct ActivationMaths {
  template <class T> __device__ __forceinline__ static T value(T x, T alpha) { return activate<mode>(x, alpha); }
  template <class T> __device__ __forceinline__ static T gradient(T x, T alpha) {
    return activate_gradient<mode>(x, alpha);
  }
};
template <> struct ActivationMaths<Activation::tanh, true> {
  __device__ __forceinline__ static float value(float x, float) { return approx_16bit::tanh(x); }
  __device__ __forceinline__ static float gradient(float x, float) { return approx_16bit::sech2(x); }
};
template <> struct ActivationMaths<Activation::gelu, true> {
  __device__ __forceinline__ static float value(float x, float) { return x * approx_16bit::normal(x).cdf; }
  __device__ __forceinline__ static float gradient(float x, float) {
    const maths::Normal<float> normal = approx_16bit::normal(x);
    return normal.cdf + x * normal.density;
  }
};

}  // namespace minidnn
