// SPDX-License-Identifier: Apache-2.0
// Statistics of rows for generated kernels. X::of<kSlot>(team, per_col, each) combines the values that each(f) passes
// to f, over all threads of a row; per_col is 1 / the number of elements of a row. It makes X::kReductions reductions,
// of which kSlot is the first. All threads of a row get the same bits.
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"
#include "cpp/reduce/reduce_math.h"
#include "cuda/rows/rows.cuh"

namespace minidnn {

// The sum of a row, its product, and its largest number, or NaN if it has a NaN.
template <class Op> struct RowCombined {
  static constexpr int kReductions = 1;
  template <int kSlot, class Team, class Each>
  __device__ __forceinline__ static float of(const Team& team, float, const Each& each) {
    float all = Op::identity();
    each([&](float v) { all = Op::of(all, v); });
    return team.template reduce<Op, kSlot>(all);
  }
};
struct ProductOp {
  __device__ static float identity() { return 1; }
  __device__ static float of(float a, float b) { return a * b; }
};
struct LargestOp {
  __device__ static float identity() { return -INFINITY; }
  __device__ static float of(float a, float b) { return max_or_nan(a, b); }
};
using RowSum = RowCombined<SumOp>;
using RowProduct = RowCombined<ProductOp>;
using RowLargest = RowCombined<LargestOp>;

// The mean of a row, as mean + rest (mean is rounded to float), and its variance. The deviations are from a mean that
// has the rounding error of a sum, so |mean| >> std costs no precision.
struct RowMoments {
  static constexpr int kReductions = 2;
  float mean, rest, variance;

  template <int kSlot, class Team, class Each>
  __device__ __forceinline__ static RowMoments of(const Team& team, float per_col, const Each& each) {
    float sum = 0;
    each([&](float v) { sum += v; });
    const float mean = team.template reduce<SumOp, kSlot>(sum) * per_col;
    float sums[2]{};  // of deviations, and of their squares
    each([&](float v) {
      const float deviation = v - mean;
      sums[0] += deviation;
      sums[1] += deviation * deviation;
    });
    team.template reduce<SumOp, kSlot + 1>(sums);
    const float rest = sums[0] * per_col;
    return {mean, rest, max_or_nan((sums[1] - sums[0] * rest) * per_col, 0.f)};
  }
};

// The largest number of a row, ignoring NaN, and the sum of exp(x - largest). T is the dtype of the result. If a number
// is NaN or inf, or all are -inf, the sum is NaN.
template <class T> struct RowExponentials {
  static constexpr int kReductions = 2;
  float largest, sum;

  template <int kSlot, class Team, class Each>
  __device__ __forceinline__ static RowExponentials of(const Team& team, float, const Each& each) {
    float most = -INFINITY;
    each([&](float v) { most = fmaxf(most, v); });
    const float largest = team.template reduce<MaxOp, kSlot>(most);
    float sum = 0;
    each([&](float v) { sum += fast::exp_of_negative<T>(v - largest); });
    return {largest, team.template reduce<SumOp, kSlot + 1>(sum)};
  }
};

// The functions of elements that belong to statistics. `shift` is rest * inverse, for the rest of a RowMoments.
__device__ __forceinline__ float normalized(float v, float mean, float shift, float inverse) {
  return (v - mean) * inverse - shift;
}
template <class T> __device__ __forceinline__ float softmax(float v, float largest, float inverse_sum) {
  return fast::exp_of_negative<T>(v - largest) * inverse_sum;
}
__device__ __forceinline__ float log_softmax(float v, float largest, float log_sum) { return (v - largest) - log_sum; }
// The gradient of softmax: y is its result, and `sum` that of dy * y, or of dy for log-softmax.
template <bool kLog>
__device__ __forceinline__ float softmax_gradient(float y, float dy, float sum, float scale) {
  if constexpr (kLog) return y == -INFINITY ? 0 : (dy - maths::exp(y) * sum) * scale;
  else return y * (dy - sum) * scale;
}
template <ReduceMode kMode> __device__ __forceinline__ float reduced(float combined, float per_col) {
  if constexpr (kMode == ReduceMode::mean) return combined * per_col;
  else if constexpr (kMode == ReduceMode::norm2) return ::sqrtf(combined);
  else if constexpr (kMode == ReduceMode::min) return -combined;
  else return combined;
}

}  // namespace minidnn
