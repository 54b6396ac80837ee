// SPDX-License-Identifier: Apache-2.0
// Integer division by a divisor that is known in advance, as a multiplication and a shift. GPUs have no instruction for
// integer division.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Divides n by a constant divisor, for 0 <= n < 2^31 and 1 <= divisor < 2^31. The multiplier is 2^(31 + s) / divisor,
// rounded up, where 2^s is the smallest power of two that is at least the divisor. Rounding the multiplier up increases
// the quotient, before truncation, by less than n / 2^(31 + s), which is less than 1 / divisor. Therefore, the
// truncated quotient is exact.
struct FastDivmod {
  uint32_t divisor = 1, multiplier = 1u << 31, shift = 31;

  FastDivmod() = default;
  MINIDNN_HD explicit FastDivmod(int64_t by) : divisor(uint32_t(by)) {
    while (int64_t(1) << (shift - 31) < by) ++shift;
    multiplier = uint32_t(((uint64_t(1) << shift) + divisor - 1) / divisor);
  }

  MINIDNN_HD uint32_t quotient(uint32_t n) const { return uint32_t(uint64_t(n) * multiplier >> shift); }
  // Divides n by the divisor. Replaces n by the quotient, and returns the remainder.
  MINIDNN_HD int32_t divmod(uint32_t& n) const {
    uint32_t rest = quotient(n), last = n - rest * divisor;
    n = rest;
    return int32_t(last);
  }
};

// Divides a 64-bit n by a constant divisor, for 0 <= n, 1 <= divisor < 2^31 and n * divisor < 2^64. If the divisor is
// 1, n must be 0. The multiplier is 2^64 / divisor, rounded up. The error of the quotient before truncation is below 1
// / divisor, so the quotient is exact.
struct LongDivisor {
  uint64_t divisor = 1, multiplier = 0;

  LongDivisor() = default;
  MINIDNN_HD explicit LongDivisor(int64_t by) : divisor(uint64_t(by)), multiplier(~uint64_t(0) / divisor + 1) {}

  MINIDNN_HD int64_t quotient(int64_t n) const {
#ifdef __CUDA_ARCH__
    return int64_t(__umul64hi(uint64_t(n), multiplier));
#else
    return int64_t(static_cast<unsigned __int128>(uint64_t(n)) * multiplier >> 64);
#endif
  }
};

}  // namespace minidnn
