// SPDX-License-Identifier: Apache-2.0
// The exponentials of a softmax and their sums relative to the largest number: arithmetic of cuda.softmax.persistent_rows and
// cuda.loss. The host compiles it too (tests/cpp/test_exponentials.cpp).
#pragma once
#include "cpp/core/half.h"
#include "cpp/core/maths.h"

#ifdef __CUDACC__
#include "cuda/device/ptx/math.cuh"
#endif

namespace minidnn::rows {

constexpr float kLog2e = 1.44269504f;

// 2^x with a relative error of at most 2^-22. A result below 2^-126 becomes 0.
MINIDNN_HD float power_of_two_ftz(float x) {
#ifdef __CUDA_ARCH__
  return ex2_approx_ftz(x);
#else
  const float power = ::exp2f(x);
  return power < 0x1p-126f ? 0 : power;
#endif
}
// The same, without flushing results that T can represent; the smallest is 2^-133 in bfloat16.
template <class T> MINIDNN_HD float power_of_two(float x) { return power_of_two_ftz(x); }
template <> MINIDNN_HD float power_of_two<bfloat16>(float x) { return power_of_two_ftz(x + 24) * 0x1p-24f; }

// exp(x) for x <= 0. For 16-bit T it takes a few instructions and has a relative error of at most 2^-15.
template <class T> MINIDNN_HD float exp_of_negative(float x) {
  if constexpr (sizeof(T) == 4) return maths::exp_of_negative(x);
  else return power_of_two<T>(x * kLog2e);
}
// The same for terms of a sum that is 1 or more: 16-bit results below 2^-126 become 0.
template <class T> MINIDNN_HD float exp_of_negative_ftz(float x) {
  if constexpr (sizeof(T) == 4) return maths::exp_of_negative(x);
  else return power_of_two_ftz(x * kLog2e);
}

// Softmax of 16-bit numbers x, with z = |scale| x; if the scale is negative, the caller negates x.
// The largest x of the row is subtracted before scaling. One multiply-add, x scale - largest scale, would round the
// second product: an error of |z| 2^-24 in the exponent, which is a factor of e^60 for z = 1e9. Here the difference,
// the factor and their product are each rounded once, relative to the difference. Powers of two above 2^-150 are
// therefore within 2^-15 of the exact ones for every x. x is halved first, which is exact, because the difference of
// two bfloat16 numbers may overflow.
class HalfScale {
 public:
  MINIDNN_HD explicit HalfScale(float of_x)
      : scale_(::fmaxf(2 * maths::abs(of_x), 0x1p-149f)), in_twos_(2 * maths::abs(of_x) * kLog2e) {}

  // The scale for Exponentials whose `largest` is half of the largest x. It is at least 2^-149, not 0, if the scale of
  // x is 0: the largest of no numbers is -inf, and -inf * 0 would be NaN.
  MINIDNN_HD float of_half() const { return scale_; }
  // exp(z - largest z), a term of the sum of the row.
  MINIDNN_HD float term(float x, float half_of_largest) const {
    return power_of_two_ftz(below(x, half_of_largest) * in_twos_);
  }
  // share(): the softmax in T, from the base-2 logarithm of the sum. log_share(): its natural logarithm, from that of
  // the sum.
  template <class T> MINIDNN_HD float share(float x, float half_of_largest, float log2_of_sum) const {
    return power_of_two<T>(below(x, half_of_largest) * in_twos_ - log2_of_sum);
  }
  MINIDNN_HD float log_share(float x, float half_of_largest, float log_of_sum) const {
    return below(x, half_of_largest) * scale_ - log_of_sum;
  }

 private:
  MINIDNN_HD static float below(float x, float half_of_largest) { return x * 0.5f - half_of_largest; }

  float scale_, in_twos_;
};

// The largest of a set of numbers, and the sum of exp(scale (number - largest)).
struct Exponentials {
  float largest, sum;

  // The sum relative to a larger number `to`. Equal numbers have the difference 0, because -inf - -inf would be NaN.
  template <class T> MINIDNN_HD float moved(float to, float scale) const {
    return sum * exp_of_negative<T>(largest == to ? 0 : (largest - to) * scale);
  }
};

template <class T> MINIDNN_HD Exponentials joined(Exponentials a, Exponentials b, float scale = 1) {
  const float largest = ::fmaxf(a.largest, b.largest);
  return {largest, a.moved<T>(largest, scale) + b.moved<T>(largest, scale)};
}

}  // namespace minidnn::rows
