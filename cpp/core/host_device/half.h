// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 as storage types. Elements are converted to float for arithmetic, and results are rounded to
// nearest even when they are stored. g++ and NVRTC produce the same bits, except for NaN payloads. On a GPU each
// conversion is a single PTX instruction.
#pragma once
#include "cpp/core/host_device/hd.h"
#ifndef __CUDA_ARCH__
#include <cstring>
#endif

namespace minidnn {

struct float16 {
  uint16_t bits;
  float16() = default;
  MINIDNN_HD float16(float v);
  MINIDNN_HD operator float() const;
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  MINIDNN_HD bfloat16(float v);
  MINIDNN_HD operator float() const;
};

#ifdef __CUDA_ARCH__

namespace detail {
MINIDNN_HD uint32_t bits_of(float v) { return __float_as_uint(v); }
MINIDNN_HD float float_of(uint32_t u) { return __uint_as_float(u); }
}  // namespace detail

MINIDNN_HD float16::float16(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
MINIDNN_HD float16::operator float() const {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
MINIDNN_HD bfloat16::bfloat16(float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
MINIDNN_HD bfloat16::operator float() const { return detail::float_of(uint32_t(bits) << 16); }

#else

namespace detail {
MINIDNN_HD uint32_t bits_of(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  return u;
}
MINIDNN_HD float float_of(uint32_t u) {
  float v;
  std::memcpy(&v, &u, 4);
  return v;
}
}  // namespace detail

inline float16::float16(float v) {
  uint32_t u = detail::bits_of(v), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude >= 0x47800000) {  // Inf and numbers of magnitude 65536 or more become Inf; NaN stays NaN
    bits = uint16_t(magnitude > 0x7f800000 ? sign | 0x7e00 : sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // numbers below 2^-14 in magnitude, which are subnormal in float16
    // Adding 0.5 makes the FPU round to multiples of 2^-24, the spacing of subnormal float16 numbers.
    bits = uint16_t(sign | (detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3f000000));
  } else {
    // Subtracts 127 - 15 from the exponent and rounds to nearest even. A carry may give Inf, which is the correct
    // result.
    uint32_t odd = magnitude >> 13 & 1;
    bits = uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
}
inline float16::operator float() const {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return detail::float_of(sign | 0x7f800000 | magnitude << 13);
  // Multiplying by 2^112 corrects the bias of the exponent and normalises subnormal numbers. The product is exact.
  return detail::float_of(sign | detail::bits_of(detail::float_of(magnitude << 13) * 0x1p112f));
}
// Rounds v to bfloat16. The result is in the upper 16 bits; the lower 16 bits are meaningless. A NaN stays NaN,
// whatever its payload.
MINIDNN_HD uint32_t nearest_bfloat16(float v) {
  uint32_t u = detail::bits_of(v), nan = u | 0x400000, nearest = u + 0x7fff + (u >> 16 & 1);
  return v != v ? nan : nearest;
}
inline bfloat16::bfloat16(float v) : bits(uint16_t(nearest_bfloat16(v) >> 16)) {}
inline bfloat16::operator float() const { return detail::float_of(uint32_t(bits) << 16); }

#endif

// Converts v to a float that can be rounded to a 16-bit type without double rounding. v is truncated, and the last bit
// is set if any bits were cut off ("round to odd"). Rounding to the nearest float and then to float16 would turn 1 +
// 2^-11 + 2^-40 into 1. The nearest float16 is 1 + 2^-10.
MINIDNN_HD float to_odd(float v) { return v; }
MINIDNN_HD float to_odd(double v) {
  float f = float(v);
  if (v != v || double(f) == v) return f;
  uint32_t bits = detail::bits_of(f);
  // If the conversion to float has rounded v away from zero, the next float towards zero is taken, so that v is
  // truncated. Inf becomes the largest finite number.
  if ((v < 0 ? -double(f) : double(f)) > (v < 0 ? -v : v)) --bits;
  return detail::float_of(bits | 1);
}
MINIDNN_HD float to_odd(int32_t v) { return to_odd(double(v)); }
MINIDNN_HD float to_odd(int64_t v) {
  // An int64 above 2^53 may have up to ten bits more than a double. They are cut off, and the last remaining bit is set
  // (round to odd).
  constexpr int64_t kExact = int64_t(1) << 53, kLowBits = 0x3ff;
  bool exact = (-kExact <= v && v <= kExact) || (v & kLowBits) == 0;
  return to_odd(double(exact ? v : (v & ~kLowBits) | (kLowBits + 1)));
}

// The type in which sums of elements of type T are accumulated. It is never narrower than float.
template <class T> struct AccumulatorOf {
  using type = float;
};
template <> struct AccumulatorOf<double> {
  using type = double;
};
template <class T> using Accumulator = typename AccumulatorOf<T>::type;

}  // namespace minidnn
