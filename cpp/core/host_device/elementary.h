// SPDX-License-Identifier: Apache-2.0
// Elementary functions of float (exp, log, tanh, erfc and others) without branches, calls or tables, so that compilers
// vectorise loops over them for any instruction set. V is float or a vector of floats. Files that are compiled once per
// instruction set use these functions through core/maths.h. The polynomials are our own minimax fits (Remez), with
// coefficients rounded to float. Arguments are reduced as in Cody and Waite (1980). All stated errors were measured
// over all floats against long double (2026-11), with and without fused multiply-adds. tests/cpp/test_elementary.cpp
// checks samples of them.
#pragma once
#include "cpp/core/host_device/hd.h"
#include "cpp/core/host_device/normal_polynomial.h"

namespace minidnn::elementary {

// The integer types that match V: int32_t and uint32_t for float, vectors of these for a vector of floats.
template <class V> struct IntsOf {
  using type = decltype(V() < V());
  typedef uint32_t unsigned_type __attribute__((vector_size(sizeof(V))));
};
template <> struct IntsOf<float> {
  using type = int32_t;
  using unsigned_type = uint32_t;
};
template <class V> using Ints = typename IntsOf<V>::type;
template <class V> using Unsigned = typename IntsOf<V>::unsigned_type;

template <class V> MINIDNN_HD Ints<V> bits_of(V v) { return __builtin_bit_cast(Ints<V>, v); }
template <class V> MINIDNN_HD Unsigned<V> unsigned_bits_of(V v) { return __builtin_bit_cast(Unsigned<V>, v); }
template <class V> MINIDNN_HD V float_of(Ints<V> i) { return __builtin_bit_cast(V, i); }
template <class V> MINIDNN_HD V float_of_unsigned(Unsigned<V> i) { return __builtin_bit_cast(V, i); }
template <class V> MINIDNN_HD V all(float v) { return V{} + v; }  // returns a vector with v in every lane
template <class V> MINIDNN_HD V magnitude(V x) { return float_of<V>(bits_of(x) & 0x7fffffff); }
template <class V> MINIDNN_HD V with_sign_of(V x, V magnitude) {
  return float_of<V>((bits_of(x) & int32_t(0x80000000)) | bits_of(magnitude));
}
// Returns the larger of x and `low`, or NaN if x is NaN.
template <class V> MINIDNN_HD V at_least(V x, float low) { return x < low ? all<V>(low) : x; }
template <class V> MINIDNN_HD V at_most(V x, float high) { return x > high ? all<V>(high) : x; }

// Returns p * 2^n for n in [-252, 254]. The factor 2^n is split into two factors that are normal numbers, so that a
// subnormal result is rounded only once.
template <class V> MINIDNN_HD V scaled(V p, Ints<V> n) {
  Ints<V> half = n >> 1;
  return p * float_of<V>((half + 127) << 23) * float_of<V>((n - half + 127) << 23);
}

constexpr float kLog2E = 1.44269504f;
// The sum kLn2High + kLn2Low is ln 2. kLn2High has only 9 significant bits, so that n * kLn2High is exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// kShift is 1.5 * 2^23. Adding it to x leaves the integer nearest to x in the low bits of the sum.
constexpr float kShift = 12582912.0f;
constexpr int32_t kShiftBits = 0x4b400000;

// Converts an integer n to float, for -2^22 < n < 2^22.
template <class V> MINIDNN_HD V to_float(Ints<V> n) { return float_of<V>(n + kShiftBits) - kShift; }

// The integer nearest to x / ln 2, as a float and as an int32.
template <class V> struct Nearest {
  V value;
  Ints<V> integer;
};
template <class V> MINIDNN_HD Nearest<V> multiple_of_ln2(V x) {
  V shifted = x * kLog2E + kShift;
  return {shifted - kShift, bits_of(shifted) - kShiftBits};
}

// Returns (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2. If e^r is computed as 1 + r + r^2 exp_tail(r), its error is within
// 2^-27.9.
template <class V> MINIDNN_HD V exp_tail(V r) {
  V q = 0x1.6a21acp-10f * r + 0x1.123b6ap-7f;
  q = q * r + 0x1.5558fap-5f;
  q = q * r + 0x1.55549p-3f;
  return q * r + 0x1.fffffcp-2f;
}

template <class V> MINIDNN_HD V exp(V x) {
  // Clipping x to [-104, 89] does not change the result: in float, exp(x) is 0 below -104 and Inf above 89.
  x = at_most(at_least(x, -104.0f), 89.0f);
  auto n = multiple_of_ln2(x);
  V r = x - n.value * kLn2High - n.value * kLn2Low;
  return scaled(r * r * exp_tail(r) + r + 1.0f, n.integer);
}

// Returns exp(x) for x <= 0. It takes fewer instructions than exp(), because the result cannot overflow.
template <class V> MINIDNN_HD V exp_of_negative(V x) {
  x = at_least(x, -104.0f);
  auto n = multiple_of_ln2(x);
  V r = x - n.value * kLn2High - n.value * kLn2Low;
  return (r * r * exp_tail(r) + r + 1.0f) * float_of<V>((n.integer + 64 + 127) << 23) * 0x1p-64f;
}

template <class V> MINIDNN_HD V expm1(V x) {
  V clipped = at_most(at_least(x, -18.0f), 89.0f);
  auto n = multiple_of_ln2(clipped);
  V high = clipped - n.value * kLn2High;
  V r = high - n.value * kLn2Low;
  V lost = (high - r) - n.value * kLn2Low;  // the rounding error of r, which is the reduced argument
  V p = r * r * exp_tail(r) + lost + r;
  // 2^n is split into two factors, because n can be 128 and 2^128 is not a float.
  Ints<V> half = n.integer >> 1;
  V scale = float_of<V>((half + 127) << 23), rest = float_of<V>((n.integer - half + 127) << 23);
  V result = (p * rest + (rest - float_of<V>((127 - half) << 23))) * scale;
  return x == 0.0f ? x : result;  // expm1(-0) must be -0
}

// Returns log(2^n (1 + m)) for m in [-0.25, 0.5). The error of the polynomial for log(1 + m) is within 2^-27.6.
template <class V> MINIDNN_HD V log_of_exponent_and_mantissa(V n, V m) {
  V q = 0x1.349ddcp-5f * m - 0x1.756634p-4f;
  q = q * m + 0x1.df4254p-4f;
  q = q * m - 0x1.04aa38p-3f;
  q = q * m + 0x1.24609cp-3f;
  q = q * m - 0x1.5519b8p-3f;
  q = q * m + 0x1.999788p-3f;
  q = q * m - 0x1.00006ep-2f;
  q = q * m + 0x1.55555ap-2f;
  V square = m * m;
  return n * kLn2High + (m + (n * kLn2Low + square * (q * m - 0.5f)));
}
// The bits of 0.75f, and the mask of the sign and the exponent. They are unsigned, because the subtraction overflows
// for some x.
constexpr uint32_t kThreeQuarters = 0x3f400000, kExponent = 0xff800000;

template <class V> MINIDNN_HD V log(V x) {
  V normal = x < 0x1p-126f ? x * 0x1p23f : x;
  Unsigned<V> exponent = (unsigned_bits_of(normal) - kThreeQuarters) & kExponent;
  V n = to_float<V>(Ints<V>(exponent) >> 23) - (x < 0x1p-126f ? all<V>(23.0f) : all<V>(0.0f));
  V result = log_of_exponent_and_mantissa(n, float_of_unsigned<V>(unsigned_bits_of(normal) - exponent) - 1.0f);
  V special = x == 0.0f ? all<V>(-INFINITY) : all<V>(NAN);
  return x > 0.0f ? (x < INFINITY ? result : x) : special;
}

template <class V> MINIDNN_HD V log1p(V x) {
  Unsigned<V> exponent = (unsigned_bits_of(x + 1.0f) - kThreeQuarters) & kExponent;
  // 1 + x is 2^n (1 + m), and m is rounded only once. 2^-n is computed as 0.25 * 2^(2 - n), because it is not a normal
  // float for n = 128.
  V m = float_of_unsigned<V>(unsigned_bits_of(x) - exponent) +
        (0.25f * float_of_unsigned<V>((129u << 23) - exponent) - 1.0f);
  V result = log_of_exponent_and_mantissa(to_float<V>(Ints<V>(exponent) >> 23), m);
  V special = x == -1.0f ? all<V>(-INFINITY) : all<V>(NAN);
  result = x > -1.0f ? (x < INFINITY ? result : x) : special;
  return x == 0.0f ? x : result;  // log1p(-0) must be -0
}

// Returns log1p(x) for x in [0, 1]. In this range there are no special cases.
template <class V> MINIDNN_HD V log1p_of_fraction(V x) {
  V n = x < 0.5f ? all<V>(0.0f) : all<V>(1.0f);
  return log_of_exponent_and_mantissa(n, x < 0.5f ? x : 0.5f * x - 0.5f);
}

template <class V> MINIDNN_HD V tanh(V x) {
  V a = magnitude(x), square = x * x;
  // For |x| <= 0.55: tanh(x) = x + x^3 q(x^2), where q is a polynomial. The error is within 2^-27.6.
  V q = -0x1.963d5ep-8f * square + 0x1.58669ap-6f;
  q = q * square - 0x1.b90fcp-5f;
  q = q * square + 0x1.110c98p-3f;
  q = q * square - 0x1.555548p-2f;
  V e = exp_of_negative(-2.0f * a);
  V small = square * a * q + a, large = 1.0f - 2.0f * e / (1.0f + e);
  return with_sign_of(x, a < 0.55f ? small : large);
}

// For a = |x| above 0.47, erfc(a) is computed as exp(-a^2) Q (1 + w). Here Q is kScale / (a + 1), cut to 11 significant
// bits, and w is a polynomial in Q plus a correction for the cut bits.
template <class V> MINIDNN_HD V erfc(V x) {
  V square = x * x;
  // For |x| <= 0.47: erf(x) = x + x e(x^2), where e is a polynomial. The error is within 2^-27.
  V e = -0x1.987ed4p-11f * square + 0x1.552662p-8f;
  e = e * square - 0x1.b8241ep-6f;
  e = e * square + 0x1.ce2f04p-4f;
  e = e * square - 0x1.812746p-2f;
  e = e * square + 0x1.06eba8p-3f;
  V near = 1.0f - (x * e + x);

  constexpr float kScale = 0x1.73a37cp-1f, kCentre = 0.1931152344f;
  V a = at_most(magnitude(x), 10.3f);  // erfc(x) rounds to 0 in float for x above 10.06
  // a^2 = z^2 + (a - z)(a + z). Here z is `a` truncated to 12 bits, so that z^2 is exact.
  V z = float_of<V>(bits_of(a) & int32_t(0xfffff000));
  auto n = multiple_of_ln2(-a * a);
  V high = -z * z - n.value * kLn2High, low = -(n.value * kLn2Low + (a - z) * (a + z));
  V r = high + low, tail = r * r * exp_tail(r) + low, t = high + tail;
  V Q = kScale / (a + 1.0f), u = Q - kCentre;
  V truncated = float_of<V>(bits_of(Q) & int32_t(0xffffe000));
  // Q is cut to 11 significant bits. `rest` satisfies truncated / (1 - rest) = kScale / (a + 1).
  V rest = ((kScale - truncated * (z + 1.0f)) - truncated * (a - z)) * (1.0f / kScale);
  rest = rest * rest + rest;
  V w = 0x1.f3430ap+5f * u - 0x1.7568fap+6f;
  w = w * u + 0x1.891194p+5f;
  w = w * u - 0x1.b16f80p-1f;
  w = w * u - 0x1.7c3710p+3f;
  w = w * u + 0x1.28052ep+2f;
  w = w * u + 0x1.dc5212p+0f;
  w = w * u - 0x1.0546c0p+1f;
  w = w * u - 0x1.839f04p-2f;
  w = w * u + 0x1.292bfep+0f;
  w = (w * u * rest + rest) + w * u;
  w = high + ((t * w + w) + tail);  // 1 + t is the factor of exp(-a^2) that is not a power of two.
  V beyond = scaled(truncated * w + truncated, n.integer);
  beyond = x < 0.0f ? 2.0f - beyond : beyond;
  return a < 0.46875f ? near : beyond;
}

// The standard normal distribution at x: the cdf and the density. The cdf is exp(-x^2 / 2) times a polynomial in 1 /
// (|x| + 3). The relative error of the polynomial is within 2^-26.2. Rounding x^2 may add an error of x^2 / 2 ulp. This
// is accepted, because a rounding error in the argument x has the same effect.
template <class V> struct Normal {
  V cdf, density;
};
template <class V> MINIDNN_HD Normal<V> normal(V x) {
  V e = exp_of_negative(-0.5f * x * x), a = at_most(magnitude(x), 15.0f);
  V sum = a + 3.0f, v = 1.0f / sum;
  // Corrects the rounding errors of a + 3 and of its reciprocal.
  V rest = (1.0f - v * sum) - v * (a - (sum - 3.0f));
  V u = v * rest + (v - 0.1875f);
  V below = normal_polynomial(u) * e;
  return {x < 0.0f ? below : 1.0f - below, e * 0.398942280f};
}

}  // namespace minidnn::elementary
