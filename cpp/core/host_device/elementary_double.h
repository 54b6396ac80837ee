// SPDX-License-Identifier: Apache-2.0
// Elementary functions of double without branches, calls or tables, so that compilers vectorise loops over them. They are
// the counterparts of functions of elementary.h. tests/cpp/test_elementary.cpp checks samples against long double, and
// has the errors that it allows.
#pragma once
#include "cpp/core/host_device/elementary.h"

namespace minidnn::elementary {

constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits of the sum
// The two constants add up to ln 2. The first one has 33 significant bits, so that its product with an integer is exact.
constexpr double kLn2DoubleHigh = 0x1.62e42feep-1, kLn2DoubleLow = 0x1.a39ef35793c76p-33;

// Returns (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, by the Taylor series. Its error is within 2^-57.
MINIDNN_HD double exp_tail(double r) {
  double q = 0x1.6124613a86d09p-33 * r + 0x1.1eed8eff8d898p-29;
  q = q * r + 0x1.ae64567f544e4p-26;
  q = q * r + 0x1.27e4fb7789f5cp-22;
  q = q * r + 0x1.71de3a556c734p-19;
  q = q * r + 0x1.a01a01a01a01ap-16;
  q = q * r + 0x1.a01a01a01a01ap-13;
  q = q * r + 0x1.6c16c16c16c17p-10;
  q = q * r + 0x1.1111111111111p-7;
  q = q * r + 0x1.5555555555555p-5;
  q = q * r + 0x1.5555555555555p-3;
  return q * r + 0.5;
}

MINIDNN_HD double exp(double x) {
  // In double, exp(x) is 0 below -746 and Inf above 710.
  x = x < -760.0 ? -760.0 : x;
  x = x > 720.0 ? 720.0 : x;
  const double shifted = x * 0x1.71547652b82fep0 + kRound, n = shifted - kRound;
  const double r = x - n * kLn2DoubleHigh - n * kLn2DoubleLow;
  const double p = r * r * exp_tail(r) + r + 1.0;
  // 2^n is the product of two powers, so that neither overflows and a subnormal result is rounded only once.
  const uint64_t bias = x < 0.0 ? uint64_t(1023 + 128) << 52 : uint64_t(1023 - 128) << 52;
  const double power = __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, shifted) << 52) + bias);
  return p * power * (x < 0.0 ? 0x1p-128 : 0x1p128);
}
MINIDNN_HD double exp_of_negative(double x) { return exp(x); }

// Returns 2^n for an integer n in [-1022, 1023].
MINIDNN_HD double power_of_two(double n) {
  return __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, n + kRound) << 52) + (uint64_t(1023) << 52));
}
MINIDNN_HD double expm1(double x) {
  double clipped = x < -40.0 ? -40.0 : x;
  clipped = clipped > 720.0 ? 720.0 : clipped;
  const double n = (clipped * 0x1.71547652b82fep0 + kRound) - kRound;
  const double high = clipped - n * kLn2DoubleHigh, r = high - n * kLn2DoubleLow;
  const double lost = (high - r) - n * kLn2DoubleLow;  // the rounding error of r
  const double p = r * r * exp_tail(r) + lost + r;
  // 2^n is split into two factors, because n can be 1024 and 2^1024 is not a double.
  const double half = (n * 0.5 + kRound) - kRound, scale = power_of_two(half), rest = power_of_two(n - half);
  const double result = (p * rest + (rest - power_of_two(-half))) * scale;
  return x == 0.0 ? x : result;  // expm1(-0) must be -0
}

// Returns n ln 2 + log(1 + m) for m in [sqrt(1/2) - 1, sqrt(2) - 1].
MINIDNN_HD double double_log_of_exponent_and_mantissa(double n, double m) {
  // log(1 + m) is 2 atanh(s), and m - s m is 2 s. The Taylor series of 2 atanh(s) - 2 s has an error within 2^-57.
  const double s = m / (2.0 + m), z = s * s;
  double q = 2.0 / 21 * z + 2.0 / 19;
  q = q * z + 2.0 / 17;
  q = q * z + 2.0 / 15;
  q = q * z + 2.0 / 13;
  q = q * z + 2.0 / 11;
  q = q * z + 2.0 / 9;
  q = q * z + 2.0 / 7;
  q = q * z + 2.0 / 5;
  q = q * z + 2.0 / 3;
  return n * kLn2DoubleHigh + (m + (n * kLn2DoubleLow - s * (m - q * z)));
}
// The bits of sqrt(1/2), and the mask of the sign and the exponent.
constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd, kDoubleExponent = 0xfff0000000000000;
// Returns the exponent in the upper 12 bits, as a number.
MINIDNN_HD double double_of_exponent(uint64_t exponent) {
  const uint64_t positive = (exponent + (uint64_t(2048) << 52)) >> 52;
  return __builtin_bit_cast(double, positive | 0x4330000000000000) - (0x1p52 + 2048);
}

MINIDNN_HD double log(double x) {
  const double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
  const uint64_t bits = __builtin_bit_cast(uint64_t, normal), exponent = (bits - kRootOfHalf) & kDoubleExponent;
  const double n = double_of_exponent(exponent) - (x < 0x1p-1022 ? 54.0 : 0.0);
  const double result = double_log_of_exponent_and_mantissa(n, __builtin_bit_cast(double, bits - exponent) - 1.0);
  const double special = x == 0.0 ? -double(INFINITY) : double(NAN);
  return x > 0.0 ? (x < double(INFINITY) ? result : x) : special;
}
MINIDNN_HD double log1p(double x) {
  const uint64_t exponent = (__builtin_bit_cast(uint64_t, x + 1.0) - kRootOfHalf) & kDoubleExponent;
  // 1 + x is 2^n (1 + m), and m is rounded only once. 2^-n is computed as 0.25 * 2^(2 - n), because it is not a normal
  // double for n = 1024.
  const double m = __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, x) - exponent) +
                   (0.25 * __builtin_bit_cast(double, (uint64_t(1025) << 52) - exponent) - 1.0);
  double result = double_log_of_exponent_and_mantissa(double_of_exponent(exponent), m);
  const double special = x == -1.0 ? -double(INFINITY) : double(NAN);
  result = x > -1.0 ? (x < double(INFINITY) ? result : x) : special;
  return x == 0.0 ? x : result;  // log1p(-0) must be -0
}
// Returns log1p(x) for x in [0, 1].
MINIDNN_HD double log1p_of_fraction(double x) {
  const bool small = x < 0x1.a8p-2;
  return double_log_of_exponent_and_mantissa(small ? 0.0 : 1.0, small ? x : 0.5 * x - 0.5);
}

MINIDNN_HD double tanh(double x) {
  const double a = x < 0.0 ? -x : x, e = expm1(2.0 * (a > 22.0 ? 22.0 : a)), result = e / (e + 2.0);
  return x == 0.0 ? x : x < 0.0 ? -result : result;
}

}  // namespace minidnn::elementary
