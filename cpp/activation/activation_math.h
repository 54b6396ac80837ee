// SPDX-License-Identifier: Apache-2.0
// The activations and their derivatives, written once: CPU engines, CUDA kernels, epilogues and fusions all call these.
// T is float or double, whatever the tensor holds. NaN in, NaN out. At a kink the derivative is the left one, except
// hardswish, whose right kink at 3 has derivative 1.
#pragma once
#include "cpp/core/desc.h"
#include "cpp/core/half.h"
#include "cpp/core/maths.h"

namespace minidnn {

// alpha is clipped_relu's ceiling, leaky_relu's and elu's negative side, softplus's sharpness; others ignore it.
enum class Activation : int64_t {
  identity, relu, clipped_relu, leaky_relu, tanh, sigmoid, elu, gelu, gelu_tanh, softplus, silu, hardswish, mish
};
constexpr int kActivations = 13;

namespace detail {

template <class T> MINIDNN_HD T sigmoid(T x) {
  // exp of a negative number only: no overflow, and no loss near 0 on the far left.
  T e = maths::exp(-maths::abs(x));
  return (x >= T(0) ? T(1) : e) / (T(1) + e);
}
template <class T> MINIDNN_HD T softplus(T x) {  // log(1 + exp x); max(x, 0) written so that NaN stays
  return (x < T(0) ? T(0) : x) + maths::log1p(maths::exp(-maths::abs(x)));
}

constexpr double kSqrtHalf = 0.70710678118654752440, kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kGeluTanhScale = 0.79788456080286535588, kGeluTanhCubic = 0.044715;

template <class T> MINIDNN_HD T normal_cdf(T x) { return T(0.5) * (T(1) + maths::erf(x * T(kSqrtHalf))); }
template <class T> MINIDNN_HD T gelu_tanh_inner(T x) { return T(kGeluTanhScale) * (x + T(kGeluTanhCubic) * x * x * x); }

}  // namespace detail

template <Activation mode, class T> MINIDNN_HD T activate(T x, T alpha) {
  if constexpr (mode == Activation::relu) return x < T(0) ? T(0) : x;
  else if constexpr (mode == Activation::clipped_relu) return x < T(0) ? T(0) : x > alpha ? alpha : x;
  else if constexpr (mode == Activation::leaky_relu) return x > T(0) ? x : alpha * x;
  else if constexpr (mode == Activation::tanh) return maths::tanh(x);
  else if constexpr (mode == Activation::sigmoid) return detail::sigmoid(x);
  else if constexpr (mode == Activation::elu) return x > T(0) ? x : alpha * maths::expm1(x);
  else if constexpr (mode == Activation::gelu) return x * detail::normal_cdf(x);
  else if constexpr (mode == Activation::gelu_tanh) return T(0.5) * x * (T(1) + maths::tanh(detail::gelu_tanh_inner(x)));
  else if constexpr (mode == Activation::softplus) return detail::softplus(alpha * x) / alpha;
  else if constexpr (mode == Activation::silu) return x * detail::sigmoid(x);
  else if constexpr (mode == Activation::hardswish)
    return x <= T(-3) ? T(0) : x >= T(3) ? x : x * (x + T(3)) / T(6);
  else if constexpr (mode == Activation::mish) return x * maths::tanh(detail::softplus(x));
  else return x;
}

// d activate(x) / d x
template <Activation mode, class T> MINIDNN_HD T activate_gradient(T x, T alpha) {
  if (x != x) return x;
  if constexpr (mode == Activation::relu) return x > T(0) ? T(1) : T(0);
  else if constexpr (mode == Activation::clipped_relu) return x > T(0) && x < alpha ? T(1) : T(0);
  else if constexpr (mode == Activation::leaky_relu) return x > T(0) ? T(1) : alpha;
  else if constexpr (mode == Activation::tanh) {
    T y = maths::tanh(x);
    return T(1) - y * y;
  } else if constexpr (mode == Activation::sigmoid) {
    T y = detail::sigmoid(x);
    return y * detail::sigmoid(-x);
  } else if constexpr (mode == Activation::elu) return x > T(0) ? T(1) : alpha * maths::exp(x);
  else if constexpr (mode == Activation::gelu) {
    // The density vanishes faster than x grows; beyond 40 the product would read Inf * 0 in float.
    T density = maths::abs(x) > T(40) ? T(0) : x * T(detail::kInvSqrt2Pi) * maths::exp(T(-0.5) * x * x);
    return detail::normal_cdf(x) + density;
  } else if constexpr (mode == Activation::gelu_tanh) {
    T t = maths::tanh(detail::gelu_tanh_inner(x));
    T slope = T(detail::kGeluTanhScale) * (T(1) + T(3 * detail::kGeluTanhCubic) * x * x);
    T bend = maths::abs(x) > T(40) ? T(0) : T(0.5) * x * (T(1) - t * t) * slope;
    return T(0.5) * (T(1) + t) + bend;
  } else if constexpr (mode == Activation::softplus) return detail::sigmoid(alpha * x);
  else if constexpr (mode == Activation::silu) {
    T s = detail::sigmoid(x);
    return maths::abs(x) > T(1000) ? s : s * (T(1) + x * detail::sigmoid(-x));
  } else if constexpr (mode == Activation::hardswish)
    return x <= T(-3) ? T(0) : x >= T(3) ? T(1) : (T(2) * x + T(3)) / T(6);
  else if constexpr (mode == Activation::mish) {
    T t = maths::tanh(detail::softplus(x)), s = detail::sigmoid(x);
    return maths::abs(x) > T(1000) ? s : t + x * s * (T(1) - t * t);
  } else return T(1);
}

template <Activation mode> struct ActivationMode { static constexpr Activation value = mode; };

// Calls f(ActivationMode<mode>{}): a run-time mode where the compile-time one is not worth a kernel of its own.
template <class F> MINIDNN_HD auto with_activation(Activation mode, F&& f) {
  switch (mode) {
    case Activation::relu: return f(ActivationMode<Activation::relu>{});
    case Activation::clipped_relu: return f(ActivationMode<Activation::clipped_relu>{});
    case Activation::leaky_relu: return f(ActivationMode<Activation::leaky_relu>{});
    case Activation::tanh: return f(ActivationMode<Activation::tanh>{});
    case Activation::sigmoid: return f(ActivationMode<Activation::sigmoid>{});
    case Activation::elu: return f(ActivationMode<Activation::elu>{});
    case Activation::gelu: return f(ActivationMode<Activation::gelu>{});
    case Activation::gelu_tanh: return f(ActivationMode<Activation::gelu_tanh>{});
    case Activation::softplus: return f(ActivationMode<Activation::softplus>{});
    case Activation::silu: return f(ActivationMode<Activation::silu>{});
    case Activation::hardswish: return f(ActivationMode<Activation::hardswish>{});
    case Activation::mish: return f(ActivationMode<Activation::mish>{});
    default: return f(ActivationMode<Activation::identity>{});
  }
}

template <class T> MINIDNN_HD T activate(Activation mode, T x, T alpha) {
  return with_activation(mode, [&](auto m) { return activate<decltype(m)::value>(x, alpha); });
}

enum class ActivationDirection : int64_t { forward, backward };

struct ActivationProblem {
  ActivationDirection direction{};
  Activation mode{};
  TensorDesc x, dy, out;  // dy only backward; out is y or dx. One dtype and one shape; any strides.
};

struct ActivationArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  double alpha = 0;
};

// One element of the result, at element offsets into the tensors. Writes after it has read: `out` may be x or dy.
template <class T, Activation mode, bool backward>
MINIDNN_HD void activation_element(const ActivationArgs& a, int64_t x_at, int64_t dy_at, int64_t out_at) {
  using Acc = Accumulator<T>;
  Acc x = Acc(static_cast<const T*>(a.x)[x_at]), alpha = Acc(a.alpha), result;
  if constexpr (backward) result = Acc(static_cast<const T*>(a.dy)[dy_at]) * activate_gradient<mode>(x, alpha);
  else result = activate<mode>(x, alpha);
  static_cast<T*>(a.out)[out_at] = T(result);
}

// The i-th element in row-major order of the shape.
template <class T, Activation mode, bool backward>
MINIDNN_HD void activation_element(const ActivationProblem& p, const ActivationArgs& a, int64_t i) {
  activation_element<T, mode, backward>(a, p.x.offset_of(i), backward ? p.dy.offset_of(i) : 0, p.out.offset_of(i));
}

}  // namespace minidnn
