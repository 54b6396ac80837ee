// SPDX-License-Identifier: Apache-2.0
// Elementary functions that have one name for float and double. g++ and NVRTC both compile this header.
#pragma once
#include "cpp/core/host_device/hd.h"
// MINIDNN_ISA is defined in files that are compiled once per instruction set (cpp/core/cpu/isa.h). The compiler must
// vectorise loops in these files, so they use the functions of elementary.h instead of libm.
#ifdef MINIDNN_ISA
#include "cpp/core/host_device/elementary_double.h"
#endif

namespace minidnn::maths {

// The cdf and the density of the standard normal distribution.
template <class T> struct Normal {
  T cdf, density;
};

#ifdef MINIDNN_ISA
MINIDNN_HD float exp(float x) { return elementary::exp(x); }
MINIDNN_HD float exp_of_negative(float x) { return elementary::exp_of_negative(x); }  // requires x <= 0
MINIDNN_HD float expm1(float x) { return elementary::expm1(x); }
MINIDNN_HD float log(float x) { return elementary::log(x); }
MINIDNN_HD float log1p(float x) { return elementary::log1p(x); }
MINIDNN_HD float log1p_of_fraction(float x) { return elementary::log1p_of_fraction(x); }  // requires x in [0, 1]
MINIDNN_HD float tanh(float x) { return elementary::tanh(x); }
MINIDNN_HD float erfc(float x) { return elementary::erfc(x); }
MINIDNN_HD Normal<float> normal(float x) {
  auto n = elementary::normal(x);
  return {n.cdf, n.density};
}
#else
MINIDNN_HD float exp(float x) { return ::expf(x); }
MINIDNN_HD float exp_of_negative(float x) { return ::expf(x); }
MINIDNN_HD float expm1(float x) { return ::expm1f(x); }
MINIDNN_HD float log(float x) { return ::logf(x); }
MINIDNN_HD float log1p(float x) { return ::log1pf(x); }
MINIDNN_HD float log1p_of_fraction(float x) { return ::log1pf(x); }
MINIDNN_HD float tanh(float x) { return ::tanhf(x); }
MINIDNN_HD float erfc(float x) { return ::erfcf(x); }
MINIDNN_HD Normal<float> normal(float x) {
  return {0.5f * ::erfcf(x * -0.707106781f), 0.398942280f * ::expf(-0.5f * x * x)};
}
#endif
// Without AVX2, vectors of two doubles are not faster than libm.
#if defined(MINIDNN_ISA) && (defined(__AVX2__) || !defined(__x86_64__))
MINIDNN_HD double exp(double x) { return elementary::exp(x); }
MINIDNN_HD double exp_of_negative(double x) { return elementary::exp_of_negative(x); }
MINIDNN_HD double expm1(double x) { return elementary::expm1(x); }
MINIDNN_HD double log(double x) { return elementary::log(x); }
MINIDNN_HD double log1p(double x) { return elementary::log1p(x); }
MINIDNN_HD double log1p_of_fraction(double x) { return elementary::log1p_of_fraction(x); }
MINIDNN_HD double tanh(double x) { return elementary::tanh(x); }
#else
MINIDNN_HD double exp(double x) { return ::exp(x); }
MINIDNN_HD double exp_of_negative(double x) { return ::exp(x); }
MINIDNN_HD double expm1(double x) { return ::expm1(x); }
MINIDNN_HD double log(double x) { return ::log(x); }
MINIDNN_HD double log1p(double x) { return ::log1p(x); }
MINIDNN_HD double log1p_of_fraction(double x) { return ::log1p(x); }
MINIDNN_HD double tanh(double x) { return ::tanh(x); }
#endif
MINIDNN_HD double erfc(double x) { return ::erfc(x); }
MINIDNN_HD Normal<double> normal(double x) {
  return {0.5 * ::erfc(x * -0.70710678118654752440), 0.39894228040143267794 * ::exp(-0.5 * x * x)};
}
MINIDNN_HD float sqrt(float x) { return ::sqrtf(x); }
MINIDNN_HD double sqrt(double x) { return ::sqrt(x); }
// Returns a * b, rounded to T. The compiler must not fuse the multiplication with an addition. On the CPU, files that
// use this function are compiled with -ffp-contract=off.
#ifdef __CUDA_ARCH__
MINIDNN_HD float rounded_product(float a, float b) { return __fmul_rn(a, b); }
MINIDNN_HD double rounded_product(double a, double b) { return __dmul_rn(a, b); }
#else
template <class T> MINIDNN_HD T rounded_product(T a, T b) { return a * b; }
#endif
MINIDNN_HD float abs(float x) { return ::fabsf(x); }
MINIDNN_HD double abs(double x) { return ::fabs(x); }

}  // namespace minidnn::maths
