// SPDX-License-Identifier: Apache-2.0
// The vectorised loops of cross-entropy, compiled once per instruction set. A row is read for its maximum, then for its
// exponentials, and with label smoothing for its sum. Only the first time is it read from memory.
#include "cpp/loss/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using V = Vector<float>;
constexpr int64_t kLane = kLanes<float>;

inline __attribute__((always_inline)) float total(V v) {
  return reduce_lanes(v, [](V a, V b) __attribute__((always_inline)) { return a + b; });
}

// Returns the maximum of a row. It may miss a NaN, but then the sum of exponentials of the row is NaN.
template <class T> float largest_of(const T* x, int64_t cols) {
  alignas(64) float widened[kSpan];
  V most = V{} - INFINITY;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i), whole = whole_steps(count);
    const float* v = read_span<Order::lanes>(x + i, widened, count, -INFINITY);
    for (int64_t j = 0; j < whole; j += kLane) {
      const V here = load(v + j);
      most = most > here ? most : here;
    }
  }
  return reduce_lanes(most, [](V a, V b) __attribute__((always_inline)) { return a > b ? a : b; });
}

void exponentials(const float* x, float* e, int64_t n, float less) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) e[i] = maths::exp_of_negative(x[i] - less);
}
// Sums the terms of a row: kSpan terms are added directly, and their sum is added to a compensated sum.
template <class T, class Make>
inline __attribute__((always_inline)) float sum_of(const T* x, int64_t cols, float beyond, Make make) {
  alignas(64) float widened[kSpan], terms[kSpan];
  CompensatedSum<float> sum;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i), whole = whole_steps(count);
    const float* v = make(read_span<Order::lanes>(x + i, widened, count, beyond), terms, whole);
    V few{};
    for (int64_t j = 0; j < whole; j += kLane) few += load(v + j);
    sum.add(total(few));
  }
  return sum.value();
}

template <class T>
void forward(const LossProblem& p, const LossArgs& a, float* losses, int64_t begin, int64_t end) {
  const int64_t cols = p.cols();
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * cols;
    const float largest = largest_of(x, cols);
    const float sum = sum_of(x, cols, -INFINITY, [=](const float* v, float* terms, int64_t n) {
      exponentials(v, terms, n, largest);
      return static_cast<const float*>(terms);
    });
    const float log_sum = maths::log(sum);
    static_cast<float*>(a.lse)[row] = largest + log_sum;
    const int64_t target = detail::target_of(p, a, row);
    if (target == p.ignore_index) {
      losses[row] = 0;
      continue;
    }
    const float logits = p.smoothed ? sum_of(x, cols, 0, [](const float* v, float*, int64_t) { return v; }) : 0;
    const float logit = 0 <= target && target < cols ? float(x[target]) : INFINITY - INFINITY;
    losses[row] = detail::loss_of<float>(largest, log_sum, logit, logits, cols, p.smoothed, float(a.smoothing));
  }
}

void gradients(const float* x, float* out, int64_t n, float lse, float g, float each) {
  n &= -kStep;
#pragma GCC ivdep  // `out` is x itself or does not overlap x
  for (int64_t i = 0; i < n; ++i) out[i] = g * (maths::exp(x[i] - lse) - each);
}

// Returns the index of element i in a buffer of converted floats. For bfloat16, each kStep elements have the even
// elements first.
template <class T> int64_t lane_of(int64_t i) { return i; }
template <> [[maybe_unused]] int64_t lane_of<bfloat16>(int64_t i) {
  return (i & -kStep) + i % kStep / 2 + i % 2 * kHalf;
}

template <class T>
void backward(const LossProblem& p, const LossArgs& a, const float* gradient, bool non_temporal, int64_t begin,
              int64_t end) {
  const int64_t cols = p.cols();
  const float smoothing = float(a.smoothing), each = smoothing / float(cols);
  alignas(64) float widened[kSpan];
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * cols;
    T* dx = static_cast<T*>(a.dx) + row * cols;
    const int64_t target = detail::target_of(p, a, row);
    if (target == p.ignore_index) {
      for (int64_t i = 0; i < cols; ++i) dx[i] = T(0.0f);
      continue;
    }
    const bool known = 0 <= target && target < cols;
    const float lse = static_cast<const float*>(a.lse)[row];
    float g = gradient[p.reduction == LossReduction::none ? row : 0];
    if (!known) g = INFINITY - INFINITY;
    write_all<Order::lanes>(dx, cols, non_temporal, [&](int64_t i, int64_t count, float* out) {
      const float* v = read_span<Order::lanes>(x + i, widened, count);
      // The target's element is computed with its neighbours. A later store would load its cache line again.
      const int64_t lane = known && i <= target && target < i + count ? lane_of<T>(target - i) : -1;
      const float logit = lane < 0 ? 0 : v[lane];
      gradients(v, out, whole_steps(count), lse, g, each);
      if (lane >= 0) out[lane] = g * (maths::exp(logit - lse) - (1 - smoothing + each));
    });
  }
  if (non_temporal) store_fence();
}

}  // namespace

extern const LossKernels loss_kernels;
const LossKernels loss_kernels = {{forward<float>, nullptr, forward<float16>, forward<bfloat16>},
                                  {backward<float>, nullptr, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
