// SPDX-License-Identifier: Apache-2.0
// The activations and their derivatives, for CPU engines, CUDA kernels and epilogues. T is float or double, whatever
// the dtype of the tensor. Every finite x gives a finite result without cancellation. For infinite x, 0 * Inf gives
// NaN. Where the derivative is discontinuous, its left limit is used, except that hardswish has the derivative 1 at x =
// 3.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

// The parameter alpha of activations. In clipped_relu, alpha is the upper bound of y. In leaky_relu and elu, alpha is a
// factor for negative x. In softplus, alpha is the sharpness (beta in PyTorch). All other activations ignore alpha.
enum class Activation : int64_t {
  identity,
  relu,
  clipped_relu,
  leaky_relu,
  tanh,
  sigmoid,
  elu,
  gelu,
  gelu_tanh,
  softplus,
  silu,
  hardswish,
  mish
};
constexpr int kActivations = 13;

namespace detail {

// Computes sigmoid(x) and sigmoid(-x) with a single exp.
template <class T> struct Sigmoids {
  T of_x, of_minus_x;
};
template <class T> MINIDNN_HD Sigmoids<T> sigmoids(T x) {
  // The argument of exp is never positive. So exp cannot overflow, and the sigmoid of a very negative x is accurate.
  T e = maths::exp_of_negative(-maths::abs(x)), large = T(1) / (T(1) + e), small = e * large;
  return {x >= T(0) ? large : small, x >= T(0) ? small : large};
}
template <class T> MINIDNN_HD T sigmoid(T x) {
  T e = maths::exp_of_negative(-maths::abs(x));
  return (x >= T(0) ? T(1) : e) / (T(1) + e);
}
// Computes log(1 + exp(alpha x)) / alpha as max(x, 0) + log(1 + exp(-|alpha x|)) / alpha, for alpha > 0. This is finite
// even if alpha * x overflows. If x is NaN, the result is NaN.
template <class T> MINIDNN_HD T softplus(T x, T alpha) {
  return (x < T(0) ? T(0) : x) + maths::log1p_of_fraction(maths::exp_of_negative(-maths::abs(alpha * x))) / alpha;
}
// Computes tanh(softplus(x)) as a numerator and a denominator. With n = exp(x), their quotient is n (n + 2) / (n (n +
// 2) + 2). For x > 0, both are divided by n^2, which avoids overflow.
template <class T> struct TanhOfSoftplus {
  T e, numerator, denominator;
  MINIDNN_HD explicit TanhOfSoftplus(T x) : e(maths::exp_of_negative(-maths::abs(x))) {
    numerator = x < T(0) ? e * (e + T(2)) : T(1) + T(2) * e;
    denominator = numerator + (x < T(0) ? T(2) : T(2) * e * e);
  }
};
template <class T> MINIDNN_HD T sech2(T x) {  // Computes 1 - tanh(x)^2 without cancellation.
  T e = maths::exp_of_negative(T(-2) * maths::abs(x));
  return T(4) * e / ((T(1) + e) * (T(1) + e));
}
// Clips x to [low, high]. Returns NaN if x is NaN.
template <class T> MINIDNN_HD T clip(T x, T low, T high) { return x < low ? low : x > high ? high : x; }

constexpr double kTwoSqrt2OverPi = 1.59576912160573071176, kGeluTanhCubic = 0.044715;

// Computes the term 2u in gelu_tanh(x) = x sigmoid(2u), where 2u = 2 sqrt(2/pi) (x + 0.044715 x^3). For |x| > 50 the
// sigmoid is exactly 0 or 1, even in double. So x is clipped to [-50, 50], which keeps x^3 finite.
template <class T> MINIDNN_HD T gelu_tanh_2u(T x) {
  x = clip(x, T(-50), T(50));
  return T(kTwoSqrt2OverPi) * (x + T(kGeluTanhCubic) * x * x * x);
}
template <class T> MINIDNN_HD T gelu_tanh_2u_gradient(T x) {
  x = clip(x, T(-50), T(50));
  return T(kTwoSqrt2OverPi) * (T(1) + T(3 * kGeluTanhCubic) * x * x);
}

}  // namespace detail

template <Activation mode, class T> MINIDNN_HD T activate(T x, T alpha) {
  using namespace detail;
  if constexpr (mode == Activation::relu) return x < T(0) ? T(0) : x;
  else if constexpr (mode == Activation::clipped_relu) return clip(x, T(0), alpha);
  else if constexpr (mode == Activation::leaky_relu) return x > T(0) ? x : alpha * x;
  else if constexpr (mode == Activation::tanh) return maths::tanh(x);
  else if constexpr (mode == Activation::sigmoid) return sigmoid(x);
  else if constexpr (mode == Activation::elu) return x > T(0) ? x : alpha * maths::expm1(x);
  else if constexpr (mode == Activation::gelu) return x * maths::normal(x).cdf;
  else if constexpr (mode == Activation::gelu_tanh) return x * sigmoid(gelu_tanh_2u(x));
  else if constexpr (mode == Activation::softplus) return softplus(x, alpha);
  else if constexpr (mode == Activation::silu) return x * sigmoid(x);
  else if constexpr (mode == Activation::hardswish) return x * (clip(x + T(3), T(0), T(6)) / T(6));
  else if constexpr (mode == Activation::mish) {
    TanhOfSoftplus<T> t(x);
    return x * (t.numerator / t.denominator);
  } else return x;
}

// Returns the derivative of activate(x) with respect to x.
template <Activation mode, class T> MINIDNN_HD T activate_gradient(T x, T alpha) {
  using namespace detail;
  if constexpr (mode == Activation::identity) return T(1);
  else if (x != x) return x;
  else if constexpr (mode == Activation::relu) return x > T(0) ? T(1) : T(0);
  else if constexpr (mode == Activation::clipped_relu) return x > T(0) && x < alpha ? T(1) : T(0);
  else if constexpr (mode == Activation::leaky_relu) return x > T(0) ? T(1) : alpha;
  else if constexpr (mode == Activation::tanh) return sech2(x);
  else if constexpr (mode == Activation::sigmoid) {
    Sigmoids<T> s = sigmoids(x);
    return s.of_x * s.of_minus_x;
  } else if constexpr (mode == Activation::elu) return x > T(0) ? T(1) : alpha * maths::exp_of_negative(x);
  else if constexpr (mode == Activation::gelu) {
    maths::Normal<T> normal = maths::normal(x);
    return normal.cdf + x * normal.density;
  } else if constexpr (mode == Activation::gelu_tanh) {
    Sigmoids<T> s = sigmoids(gelu_tanh_2u(x));
    return s.of_x + x * (s.of_x * s.of_minus_x * gelu_tanh_2u_gradient(x));
  } else if constexpr (mode == Activation::softplus) return sigmoid(alpha * x);
  else if constexpr (mode == Activation::silu) {
    Sigmoids<T> s = sigmoids(x);
    return s.of_x * (T(1) + x * s.of_minus_x);
  } else if constexpr (mode == Activation::hardswish) return x <= T(-3) ? T(0) : x >= T(3) ? T(1) : x / T(3) + T(0.5);
  else if constexpr (mode == Activation::mish) {
    // The derivative of x tanh(softplus(x)). With n = exp(x) and d = n (n + 2) + 2, the derivative of tanh at
    // softplus(x) is 4 (1 + n)^2 / d^2, and that of softplus at x is n / (1 + n).
    TanhOfSoftplus<T> t(x);
    T inverse = T(1) / t.denominator, weight = x < T(0) ? t.e : t.e * t.e;
    return t.numerator * inverse + x * (T(4) * (T(1) + t.e) * weight * (inverse * inverse));
  }
}

template <Activation mode> struct ActivationMode {
  static constexpr Activation value = mode;
};

// Converts an activation that is known only at run time to a template argument.
template <class F> MINIDNN_HD auto with_activation(Activation mode, F&& f) {
  switch (mode) {
    case Activation::relu:
      return f(ActivationMode<Activation::relu>{});
    case Activation::clipped_relu:
      return f(ActivationMode<Activation::clipped_relu>{});
    case Activation::leaky_relu:
      return f(ActivationMode<Activation::leaky_relu>{});
    case Activation::tanh:
      return f(ActivationMode<Activation::tanh>{});
    case Activation::sigmoid:
      return f(ActivationMode<Activation::sigmoid>{});
    case Activation::elu:
      return f(ActivationMode<Activation::elu>{});
    case Activation::gelu:
      return f(ActivationMode<Activation::gelu>{});
    case Activation::gelu_tanh:
      return f(ActivationMode<Activation::gelu_tanh>{});
    case Activation::softplus:
      return f(ActivationMode<Activation::softplus>{});
    case Activation::silu:
      return f(ActivationMode<Activation::silu>{});
    case Activation::hardswish:
      return f(ActivationMode<Activation::hardswish>{});
    case Activation::mish:
      return f(ActivationMode<Activation::mish>{});
    default:
      return f(ActivationMode<Activation::identity>{});
  }
}

namespace detail {
// A functor, because NVRTC treats a generic lambda as host code.
template <class T> struct Activate {
  T x, alpha;
  template <class Mode> MINIDNN_HD T operator()(Mode) const { return activate<Mode::value>(x, alpha); }
};
}  // namespace detail

template <class T> MINIDNN_HD T activate(Activation mode, T x, T alpha) {
  return with_activation(mode, detail::Activate<T>{x, alpha});
}

enum class ActivationDirection : int64_t { forward, backward };

struct ActivationProblem {
  ActivationDirection direction{};
  Activation mode{};
  // Only the backward function uses `dy`. `out` describes y in the forward function, and dx in the backward function.
  // All tensors have the same dtype and the same shape, with any strides.
  TensorDesc x, dy, out;
};

struct ActivationArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  double alpha = 0;
};

// Computes one element of y or dx. x_at, dy_at and out_at are offsets in elements. The inputs are read before the
// result is written, so `out` may be the same memory as x or dy.
template <class T, Activation mode, bool backward>
MINIDNN_HD void activation_element(const ActivationArgs& a, int64_t x_at, int64_t dy_at, int64_t out_at) {
  using Acc = Accumulator<T>;
  Acc x = Acc(static_cast<const T*>(a.x)[x_at]), alpha = Acc(a.alpha), result;
  if constexpr (backward) result = Acc(static_cast<const T*>(a.dy)[dy_at]) * activate_gradient<mode>(x, alpha);
  else result = activate<mode>(x, alpha);
  static_cast<T*>(a.out)[out_at] = T(result);
}

// Computes the i-th element of y or dx, counted in row-major order of the shape.
template <class T, Activation mode, bool backward>
MINIDNN_HD void activation_element(const ActivationProblem& p, const ActivationArgs& a, int64_t i) {
  activation_element<T, mode, backward>(a, p.x.offset_of(i), backward ? p.dy.offset_of(i) : 0, p.out.offset_of(i));
}

}  // namespace minidnn
