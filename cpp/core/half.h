// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 as storage types: converted to float to compute, rounded to nearest even on the way back.
// The same bits come out of g++ and NVRTC, NaN payloads apart; on a GPU the conversions are single PTX instructions.
#pragma once
#include "cpp/core/hd.h"
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
  if (magnitude >= 0x47800000) {  // 65536 and above, Inf, NaN
    bits = uint16_t(magnitude > 0x7f800000 ? sign | 0x7e00 : sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // below the smallest normal, 2^-14: adding 0.5 lets the FPU round to 2^-24
    bits = uint16_t(sign | (detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3f000000));
  } else {  // rebias the exponent by 127 - 15, round to nearest even; a carry into Inf is right
    uint32_t odd = magnitude >> 13 & 1;
    bits = uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
}
inline float16::operator float() const {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return detail::float_of(sign | 0x7f800000 | magnitude << 13);
  // 2^112 rebiases the exponent and normalises subnormals exactly.
  return detail::float_of(sign | detail::bits_of(detail::float_of(magnitude << 13) * 0x1p112f));
}
// The bfloat16 in the upper half of a word; what is below is to be dropped. A NaN stays one, whatever its payload.
MINIDNN_HD uint32_t nearest_bfloat16(float v) {
  uint32_t u = detail::bits_of(v), nan = u | 0x400000, nearest = u + 0x7fff + (u >> 16 & 1);
  return v != v ? nan : nearest;
}
inline bfloat16::bfloat16(float v) : bits(uint16_t(nearest_bfloat16(v) >> 16)) {}
inline bfloat16::operator float() const { return detail::float_of(uint32_t(bits) << 16); }

#endif

// A float for a 16-bit type to be made of, such that the value is rounded once: what does not fit is cut off and leaves
// the last bit set ("round to odd"). Through the nearest float, 1 + 2^-11 + 2^-40 would become 1 in float16.
MINIDNN_HD float to_odd(float v) { return v; }
MINIDNN_HD float to_odd(double v) {
  float f = float(v);
  if (v != v || double(f) == v) return f;
  uint32_t bits = detail::bits_of(f);
  if ((v < 0 ? -double(f) : double(f)) > (v < 0 ? -v : v)) --bits;  // towards zero; Inf becomes the largest number
  return detail::float_of(bits | 1);
}
MINIDNN_HD float to_odd(int32_t v) { return to_odd(double(v)); }
MINIDNN_HD float to_odd(int64_t v) {
  constexpr int64_t kExact = int64_t(1) << 53, kLowBits = 0x3ff;  // a double holds the other bits of any larger number
  bool exact = (-kExact <= v && v <= kExact) || (v & kLowBits) == 0;
  return to_odd(double(exact ? v : (v & ~kLowBits) | (kLowBits + 1)));
}

// The type sums are kept in: never narrower than float.
template <class T> struct AccumulatorOf {
  using type = float;
};
template <> struct AccumulatorOf<double> {
  using type = double;
};
template <class T> using Accumulator = typename AccumulatorOf<T>::type;

}  // namespace minidnn
