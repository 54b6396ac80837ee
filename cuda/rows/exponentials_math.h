// SPDX-License-Identifier: Apache-2.0
// The exponentials of a softmax and their sums relative to the largest number: arithmetic of
// cuda.softmax.persistent_rows and cuda.loss. The host compiles it too (tests/cpp/test_exponentials.cpp).
#pragma once
#include "cuda/device/fast_math.cuh"

namespace minidnn::rows {

// Softmax of 16-bit numbers x, with z = |scale| x; if the scale is negative, the caller negates x.
// The largest x of the row is subtracted before scaling. One multiply-add, x scale - largest scale, would round the
// second product: an error of |z| 2^-24 in the exponent, which is a factor of e^60 for z = 1e9. Here the difference,
// the factor and their product are each rounded once, relative to the difference. Powers of two above 2^-150 are
// therefore within 2^-15 of the exact ones for every x. x is halved first, which is exact, because the difference of
// two bfloat16 numbers may overflow.
class HalfScale {
 public:
  MINIDNN_HD explicit HalfScale(float of_x)
      : scale_(::fmaxf(2 * maths::abs(of_x), 0x1p-149f)), in_exp2_(2 * maths::abs(of_x) * fast::kLog2E) {}

  // The scale for Exponentials whose `largest` is half of the largest x. It is at least 2^-149, not 0, if the scale of
  // x is 0: the largest of no numbers is -inf, and -inf * 0 would be NaN.
  MINIDNN_HD float of_half() const { return scale_; }
  // exp(z - largest z), a term of the sum of the row.
  MINIDNN_HD float term(float x, float half_of_largest) const {
    return fast::exp2_ftz(below(x, half_of_largest) * in_exp2_);
  }
  // share(): the softmax in T, from the base-2 logarithm of the sum. log_share(): its natural logarithm, from that of
  // the sum.
  template <class T> MINIDNN_HD float share(float x, float half_of_largest, float log2_of_sum) const {
    return fast::exp2_in<T>(below(x, half_of_largest) * in_exp2_ - log2_of_sum);
  }
  MINIDNN_HD float log_share(float x, float half_of_largest, float log_of_sum) const {
    return below(x, half_of_largest) * scale_ - log_of_sum;
  }

 private:
  MINIDNN_HD static float below(float x, float half_of_largest) { return x * 0.5f - half_of_largest; }

  float scale_, in_exp2_;
};

// The largest of a set of numbers, and the sum of exp(scale (number - largest)).
struct Exponentials {
  float largest, sum;

  // The sum relative to a larger number `to`. Equal numbers have the difference 0, because -inf - -inf would be NaN.
  template <class T> MINIDNN_HD float moved(float to, float scale) const {
    return sum * fast::exp_of_negative<T>(largest == to ? 0 : (largest - to) * scale);
  }
};

template <class T> MINIDNN_HD Exponentials joined(Exponentials a, Exponentials b, float scale = 1) {
  const float largest = ::fmaxf(a.largest, b.largest);
  return {largest, a.moved<T>(largest, scale) + b.moved<T>(largest, scale)};
}

}  // namespace minidnn::rows
