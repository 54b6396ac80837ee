// SPDX-License-Identifier: Apache-2.0
// Activations in a few instructions, without branches and without IEEE divisions. They are for results that are rounded
// to 16 bits, and for sums of TF32 products, whose own errors are much larger. Tests compile this file for the host,
// too.
//
// The relative errors of the results are at most 2^-15, down to the smallest bfloat16 (2^-133). Only that of gelu grows
// to 2^-19 (1 + x^2 / 2). Smaller results may become 0. NaN, infinities and -0 give the results of activation_math.h.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cuda/device/fast_math.cuh"

namespace minidnn {
namespace fast {

// 1 / (1 + 2^t), which is sigmoid(x) for t = -x log2(e). Numerator and denominator are multiplied by 2^-24: without
// this, results below 2^-126 would become 0, since reciprocal_ftz(2^126) is the smallest result of that function.
MINIDNN_HD float sigmoid_of_log2(float t) { return reciprocal_ftz(0x1p-24f + exp2_ftz(t - 24)) * 0x1p-24f; }

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
MINIDNN_HD float tanh_of_softplus(float x) {
  const float n = exp2_in<bfloat16>((x > 20 ? 20 : x) * kLog2E), product = n * n + 2 * n;
  return product * reciprocal_ftz(product + 2);
}

}  // namespace fast

// The formulas of an activation: those of activation_math.h or, if kFast, those of this file.
template <Activation kMode, bool kFast> struct ActivationMaths {
  template <class T> MINIDNN_HD static T value(T x, T alpha) { return activate<kMode>(x, alpha); }
  template <class T> MINIDNN_HD static T gradient(T x, T alpha) { return activate_gradient<kMode>(x, alpha); }
};
template <> struct ActivationMaths<Activation::tanh, true> {
  MINIDNN_HD static float value(float x, float) { return fast::tanh(x); }
  MINIDNN_HD static float gradient(float x, float) { return fast::sech2(x); }
};
template <> struct ActivationMaths<Activation::gelu, true> {
  MINIDNN_HD static float value(float x, float) { return x * fast::normal(x).cdf; }
  MINIDNN_HD static float gradient(float x, float) {
    const maths::Normal<float> normal = fast::normal(x);
    return normal.cdf + x * normal.density;
  }
};
template <Activation kMode> struct FastValue {  // the derivative has no shorter formula
  MINIDNN_HD static float gradient(float x, float alpha) { return activate_gradient<kMode>(x, alpha); }
};
template <> struct ActivationMaths<Activation::sigmoid, true> : FastValue<Activation::sigmoid> {
  MINIDNN_HD static float value(float x, float) { return fast::sigmoid_of_log2(-fast::kLog2E * x); }
};
template <> struct ActivationMaths<Activation::silu, true> : FastValue<Activation::silu> {
  MINIDNN_HD static float value(float x, float) { return x * fast::sigmoid_of_log2(-fast::kLog2E * x); }
};
template <> struct ActivationMaths<Activation::gelu_tanh, true> : FastValue<Activation::gelu_tanh> {
  MINIDNN_HD static float value(float x, float) {
    constexpr float kLinear = float(-detail::kTwoSqrt2OverPi * fast::kLog2E);
    constexpr float kCubic = float(-detail::kTwoSqrt2OverPi * detail::kGeluTanhCubic * fast::kLog2E);
    return x * fast::sigmoid_of_log2(x * (kLinear + kCubic * (x * x)));
  }
};
template <> struct ActivationMaths<Activation::elu, true> : FastValue<Activation::elu> {
  // The selects are of operands, since a select of results would be compiled to a branch. -0 + x is x, even for x = -0.
  MINIDNN_HD static float value(float x, float alpha) {
    return (x > 0 ? x : -0.0f) + (x > 0 ? 0 : alpha) * fast::expm1_of_negative(x > 0 ? 0 : x);
  }
};
template <> struct ActivationMaths<Activation::softplus, true> : FastValue<Activation::softplus> {
  MINIDNN_HD static float value(float x, float alpha) {
    const float e = fast::exp2_in<bfloat16>(-fast::kLog2E * ::fabsf(alpha * x));
    return (x < 0 ? 0 : x) + fast::log1p_of_fraction(e) * (1 / alpha);
  }
};
template <> struct ActivationMaths<Activation::hardswish, true> : FastValue<Activation::hardswish> {
  MINIDNN_HD static float value(float x, float) { return x * (detail::clip(x + 3, 0.0f, 6.0f) * (1.0f / 6)); }
};
template <> struct ActivationMaths<Activation::mish, true> : FastValue<Activation::mish> {
  MINIDNN_HD static float value(float x, float) { return x * fast::tanh_of_softplus(x); }
};

}  // namespace minidnn
