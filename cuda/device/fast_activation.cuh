// SPDX-License-Identifier: Apache-2.0
// Activations in a few instructions, without branches and without IEEE divisions. They are for results that are rounded
// to 16 bits, and for sums of TF32 products, whose own errors are much larger. Tests compile this file for the host,
// too.
//
// The relative errors of the results are at most 2^-15; that of gelu is at most 2^-15 + 2^-19 x^2. NaN, infinities and
// -0 give the results of activation_math.h.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/device/fast_math.cuh"

namespace minidnn {

// Which formulas compute an activation:
//   accurate  those of activation_math.h, and a shorter one of gelu for float32
//   fast      those of this file; the bounds hold down to the smallest bfloat16 (2^-133)
//   fast_ftz  with an instruction or two less; results below 2^-119 may become 0
enum class Formula { accurate, fast, fast_ftz };

namespace fast {

// exp(x) for x <= 88.
template <Formula kFormula> MINIDNN_HD float exp(float x) {
  if constexpr (kFormula == Formula::fast_ftz) return exp2_ftz(x * kLog2E);
  else return exp2_in<bfloat16>(x * kLog2E);
}

// 1 / (1 + 2^t), which is sigmoid(x) for t = -x log2(e). reciprocal_ftz() returns 0 for denominators above 2^126. So
// the denominator is multiplied by 2^-24, unless results below 2^-126 may become 0.
template <Formula kFormula> MINIDNN_HD float sigmoid_of_log2(float t) {
  if constexpr (kFormula == Formula::fast_ftz) return reciprocal_ftz(1 + exp2_ftz(t));
  else return reciprocal_ftz(0x1p-24f + exp2_ftz(t - 24)) * 0x1p-24f;
}

// x times the cumulative distribution of the normal distribution. The distribution at -a is exp(-a^2 / 2) times a
// polynomial of 1 / (a + 4), which has a relative error of 2^-15.2 for 0 <= a <= 13.3. It was fitted to minimise that
// error. For larger a, exp(-a^2 / 2) is below 2^-126.
template <Formula kFormula> MINIDNN_HD float gelu(float x) {
  const float t = -0.5f * kLog2E * (x * x), e = kFormula == Formula::fast_ftz ? exp2_ftz(t) : exp2(t);
  const float r = reciprocal_ftz(::fabsf(x) + 4);
  float p = 254.461121f * r - 31.4029903f;
  p = p * r + 12.7836971f;
  p = p * r + 1.13816774f;
  p = p * r + 0.413945675f;
  p = p * r - 0.000183333032f;
  const float below = p * e;
  return x * (x < 0 ? below : 1 - below);
}

// As gelu(), for float32 results. The relative error is at most (11 + x^2) 2^-24. The distribution at -a is
// exp(-a^2 / 2) times a polynomial of 1 / (a + 3), which was fitted for 0 <= a <= 14.3. With its roundings, it has a
// relative error of at most 5.2 2^-24. erfcf() would take twice as many instructions.
MINIDNN_HD float gelu_in_float32(float x) {
  const float e = exp2(-0.5f * kLog2E * (x * x)), r = reciprocal_ftz(::fabsf(x) + 3);
  float p = -537.7535400390625f * r + 1000.1573486328125f;
  p = p * r - 700.835693359375f;
  p = p * r + 202.98287963867188f;
  p = p * r - 23.76556968688965f;
  p = p * r + 11.429594993591309f;
  p = p * r + 2.8614611625671387f;
  p = p * r + 1.2129701375961304f;
  p = p * r + 0.39849206805229187f;
  p = p * r + 5.447253897727933e-06f;
  const float below = p * e;
  return x * (x < 0 ? below : 1 - below);
}

// exp(x) - 1 for x <= 0. Near 0, where the subtraction would cancel, the result is a polynomial.
MINIDNN_HD float expm1_of_negative(float x) {
  const float small = x * (1 + x * (0.5f + x * (1.0f / 6 + x * (1.0f / 24))));
  return x > -0.15f ? small : exp2_ftz(x * kLog2E) - 1;
}

// log(1 + e) for e in [0, 1].
MINIDNN_HD float log1p_of_fraction(float e) {
  const float small = e - e * e * (0.5f - e * (1.0f / 3)), large = log2_ftz(1 + e) * 0.693147181f;
  return e < 0x1p-6f ? small : large;
}

// tanh(softplus(x)) = n (n + 2) / (n (n + 2) + 2), with n = exp(x). It is 1 for x > 20, in float32.
template <Formula kFormula> MINIDNN_HD float tanh_of_softplus(float x) {
  const float n = exp<kFormula>(x > 20 ? 20 : x), product = n * n + 2 * n;
  return product * reciprocal_ftz(product + 2);
}

}  // namespace fast

template <Activation kMode, Formula kFormula, class T> MINIDNN_HD T activate(T x, T alpha) {
  using enum Activation;
  if constexpr (kFormula == Formula::accurate && kMode == gelu && sizeof(T) == 4) return fast::gelu_in_float32(x);
  else if constexpr (kFormula == Formula::accurate) return activate<kMode>(x, alpha);
  else if constexpr (kMode == Activation::tanh) return fast::tanh(x);
  else if constexpr (kMode == sigmoid) return fast::sigmoid_of_log2<kFormula>(-fast::kLog2E * x);
  else if constexpr (kMode == silu) return x * fast::sigmoid_of_log2<kFormula>(-fast::kLog2E * x);
  else if constexpr (kMode == gelu) return fast::gelu<kFormula>(x);
  else if constexpr (kMode == gelu_tanh) {
    constexpr float kLinear = float(-detail::kTwoSqrt2OverPi * fast::kLog2E);
    constexpr float kCubic = float(-detail::kTwoSqrt2OverPi * detail::kGeluTanhCubic * fast::kLog2E);
    return x * fast::sigmoid_of_log2<kFormula>(x * (kLinear + kCubic * (x * x)));
  } else if constexpr (kMode == elu) {
    // The selects are of operands, since a select of results would be compiled to a branch. -0 + x is x, even for -0.
    return (x > 0 ? x : -0.0f) + (x > 0 ? 0 : alpha) * fast::expm1_of_negative(x > 0 ? 0 : x);
  } else if constexpr (kMode == softplus) {
    const float e = fast::exp<kFormula>(-::fabsf(alpha * x));
    return (x < 0 ? 0 : x) + fast::log1p_of_fraction(e) * (1 / alpha);
  } else if constexpr (kMode == hardswish) return x * (detail::clip(x + 3, 0.0f, 6.0f) * (1.0f / 6));
  else if constexpr (kMode == mish) return x * fast::tanh_of_softplus<kFormula>(x);
  else return activate<kMode>(x, alpha);
}

// The derivative of activate(x) with respect to x.
template <Activation kMode, Formula kFormula, class T> MINIDNN_HD T activate_gradient(T x, T alpha) {
  if constexpr (kFormula == Formula::accurate) return activate_gradient<kMode>(x, alpha);
  else if constexpr (kMode == Activation::tanh) return fast::sech2(x);
  else if constexpr (kMode == Activation::gelu) {
    const maths::Normal<float> normal = fast::normal(x);
    return normal.cdf + x * normal.density;
  } else return activate_gradient<kMode>(x, alpha);
}

}  // namespace minidnn
