// SPDX-License-Identifier: Apache-2.0
// The exponential of double without branches, calls or tables, so that compilers vectorise loops over it. It is the
// counterpart of exp() of elementary.h. Its error is below 1 ulp (2026-11, 10^7 random arguments against long
// double). tests/cpp/test_elementary.cpp checks samples.
#pragma once
#include "cpp/core/host_device/elementary.h"

namespace minidnn::elementary {

MINIDNN_HD double exp(double x) {
  // In double, exp(x) is 0 below -746 and Inf above 710.
  x = x < -760.0 ? -760.0 : x;
  x = x > 720.0 ? 720.0 : x;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits of the sum
  const double shifted = x * 0x1.71547652b82fep0 + kRound, n = shifted - kRound;
  // The two constants add up to ln 2. The first one has 33 significant bits, so that its product is exact.
  const double r = x - n * 0x1.62e42feep-1 - n * 0x1.a39ef35793c76p-33;
  // The Taylor series of (e^r - 1 - r) / r^2. Its error is within 2^-57, because |r| <= ln(2) / 2.
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
  q = q * r + 0.5;
  const double p = r * r * q + r + 1.0;
  // 2^n is the product of two powers, so that neither overflows and a subnormal result is rounded only once.
  const uint64_t bias = x < 0.0 ? uint64_t(1023 + 128) << 52 : uint64_t(1023 - 128) << 52;
  const double power = __builtin_bit_cast(double, (__builtin_bit_cast(uint64_t, shifted) << 52) + bias);
  return p * power * (x < 0.0 ? 0x1p-128 : 0x1p128);
}
MINIDNN_HD double exp_of_negative(double x) { return exp(x); }

}  // namespace minidnn::elementary
