// SPDX-License-Identifier: Apache-2.0
// The index arithmetic of gathering operands by the element or by vectors of up to 16 bytes, from any strides and windows.
// Rows and k are counted in 32 bits, offsets are in 64. An element's address is the sum of what its row and its k
// say, and so is whether it exists: each side has a mask, and an element is there where the two have no bit in common. A
// tap has its own bit in each dimension, a position the bits of the taps that fall outside. Std-free.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

// Division by a constant below 2^31 of numbers below 2^31.
struct Divisor {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  Divisor() = default;
  MINIDNN_HD explicit Divisor(uint32_t d) : divisor(d) {
    while (shift < 31 && uint32_t(1) << shift < d) ++shift;
    if (d > 1) multiplier = uint32_t(((uint64_t(1) << (31 + shift)) + d - 1) / d), --shift;
  }
  MINIDNN_HD uint32_t divide(uint32_t n) const {
    uint32_t high = uint32_t(uint64_t(n) * multiplier >> 32) >> shift;
    return divisor == 1 ? n : high;
  }
};

struct Digits {
  uint32_t at[kDigits];
};

struct GatherIndex {
  uint32_t size = 0;
  Divisor by[kDigits - 1];  // digits 1, 2 and 3

  MINIDNN_HD Digits digits(uint32_t i) const {
    Digits d;
    for (int j = kDigits - 1; j > 0; --j) {
      uint32_t rest = by[j - 1].divide(i);
      d.at[j] = i - rest * by[j - 1].divisor;
      i = rest;
    }
    d.at[0] = i;
    return d;
  }
};

MINIDNN_HD int64_t offset_of(const GemmStrides& s, const Digits& d) {
  int64_t offset = 0;
  for (int j = 0; j < kDigits; ++j) offset += int64_t(d.at[j]) * s.of[j];
  return offset;
}

constexpr uint32_t kMaxTapBits = 30;
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;  // kNothing meets each of the two

}  // namespace minidnn
