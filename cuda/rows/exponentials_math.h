// SPDX-License-Identifier: Apache-2.0
// The exponentials of a softmax and their sums, relative to the largest number of a row. The kernels of
// cuda.softmax.persistent_rows and cuda.loss use this file. Tests compile it for the host, too
// (tests/cpp/test_exponentials.cpp).
#pragma once
#include "cuda/device/fast_math.cuh"

namespace minidnn::rows {

// The softmax of z = |scale| x, for 16-bit numbers x. If the scale is negative, the caller negates x. The largest x of
// the row is subtracted before the multiplication by the scale, so results above 2^-150 have a relative error of at
// most 2^-15. With the scale first, the exponent of z = 1e9 could be wrong by 60. x is halved first, because the
// difference of two bfloat16 numbers may overflow.
class HalfScale {
 public:
  MINIDNN_HD explicit HalfScale(float of_x)
      : scale_(::fmaxf(2 * maths::abs(of_x), 0x1p-149f)), in_exp2_(2 * maths::abs(of_x) * fast::kLog2E) {}

  // Returns the scale for an Exponentials object whose numbers are x / 2. It is never 0, because the sum of an empty
  // set, whose `largest` is -inf, would then be NaN.
  MINIDNN_HD float of_half() const { return scale_; }
  // Returns exp(z - largest z), which is one term of the sum of a row.
  MINIDNN_HD float term(float x, float half_of_largest) const {
    return fast::exp2_ftz(below(x, half_of_largest) * in_exp2_);
  }
  // The softmax of x in type T, and its natural logarithm. share() takes the base-2 logarithm of the row's sum, and
  // log_share() takes the natural logarithm.
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

// The largest of a set of numbers, and the sum of exp(scale (number - largest)) over the set.
struct Exponentials {
  float largest, sum;

  // Returns the sum relative to `to` instead of `largest`: the sum of exp(scale (number - to)), where to >= largest. If
  // both are -inf, their difference would be NaN, so equal numbers have the difference 0.
  template <class T> MINIDNN_HD float moved(float to, float scale) const {
    return sum * fast::exp_of_negative<T>(largest == to ? 0 : (largest - to) * scale);
  }
};

template <class T> MINIDNN_HD Exponentials joined(Exponentials a, Exponentials b, float scale = 1) {
  const float largest = ::fmaxf(a.largest, b.largest);
  return {largest, a.moved<T>(largest, scale) + b.moved<T>(largest, scale)};
}

}  // namespace minidnn::rows
