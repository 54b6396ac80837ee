// SPDX-License-Identifier: Apache-2.0
// The vectorised loops of cross-entropy, compiled once per instruction set. A row is read for its maximum, then for its
// exponentials, and with label smoothing for its sum. Only the first time is it read from memory.
#include "cpp/core/host_device/elementary_double.h"
#include "cpp/loss/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class A> constexpr int64_t kLane = kLanes<A>;

// They are not inlined, because they are short compared to a row.
__attribute__((noinline)) int64_t offset_of_row(const TensorDesc& d, int64_t axis, int64_t row) {
  int64_t offset = 0;
  for (int i = int(d.rank) - 1; i >= 0; --i) {
    if (i == axis) continue;
    offset += row % d.shape[i] * d.stride[i];
    row /= d.shape[i];
  }
  return offset;
}
__attribute__((noinline)) int64_t target_of(const LossProblem& p, const LossArgs& a, int64_t row) {
  return detail::target_of(p, a, row);
}

// Returns the maximum of a row. It may miss a NaN, but then the sum of exponentials of the row is NaN.
template <class T> Accumulator<T> largest_of(const T* x, int64_t cols) {
  using A = Accumulator<T>;
  alignas(64) A widened[kSpan];
  Vector<A> most = Vector<A>{} - INFINITY;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i), whole = whole_steps(count);
    const A* v = read_span<Order::lanes>(x + i, widened, count, -INFINITY);
    for (int64_t j = 0; j < whole; j += kLane<A>) {
      const Vector<A> here = load(v + j);
      most = most > here ? most : here;
    }
  }
  return reduce_lanes(most, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

template <class A> void exponentials(const A* x, A* e, int64_t n, A less) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) e[i] = elementary::exp_of_negative(x[i] - less);
}
// Sums the terms of a row: kSpan terms are added directly, and their sum is added to a compensated sum.
template <class T, class Make>
inline __attribute__((always_inline)) Accumulator<T> sum_of(const T* x, int64_t cols, Accumulator<T> beyond,
                                                            Make make) {
  using A = Accumulator<T>;
  alignas(64) A widened[kSpan], terms[kSpan];
  CompensatedSum<A> sum;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i), whole = whole_steps(count);
    const A* v = make(read_span<Order::lanes>(x + i, widened, count, beyond), terms, whole);
    Vector<A> few{};
    for (int64_t j = 0; j < whole; j += kLane<A>) few += load(v + j);
    sum.add(reduce_lanes(few, [](auto a, auto b) __attribute__((always_inline)) { return a + b; }));
  }
  return sum.value();
}

template <class T>
void forward(const LossProblem& p, const LossArgs& a, void* losses, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  const int64_t cols = p.cols();
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + offset_of_row(p.x, p.axis, row);
    const A largest = largest_of(x, cols);
    const A sum = sum_of(x, cols, -INFINITY, [=](const A* v, A* terms, int64_t n) {
      exponentials(v, terms, n, largest);
      return static_cast<const A*>(terms);
    });
    const A log_sum = maths::log(sum);
    static_cast<A*>(a.lse)[row] = largest + log_sum;
    A& loss = static_cast<A*>(losses)[row];
    const int64_t target = target_of(p, a, row);
    if (target == p.ignore_index) {
      loss = 0;
      continue;
    }
    const A logits = p.smoothed ? sum_of(x, cols, 0, [](const A* v, A*, int64_t) { return v; }) : 0;
    const A logit = 0 <= target && target < cols ? A(x[target]) : A(INFINITY) - A(INFINITY);
    loss = detail::loss_of<A>(largest, log_sum, logit, logits, cols, p.smoothed, A(a.smoothing));
  }
}

template <class A> void gradients(const A* x, A* out, int64_t n, A lse, A g, A each) {
  n &= -kStep;
#pragma GCC ivdep  // `out` is x itself or does not overlap x
  for (int64_t i = 0; i < n; ++i) out[i] = g * (elementary::exp(x[i] - lse) - each);
}

// Returns the index of element i in a buffer of converted floats. For bfloat16, each kStep elements have the even
// elements first.
template <class T> int64_t lane_of(int64_t i) { return i; }
template <> [[maybe_unused]] int64_t lane_of<bfloat16>(int64_t i) {
  return (i & -kStep) + i % kStep / 2 + i % 2 * kHalf;
}

template <class T>
void backward(const LossProblem& p, const LossArgs& a, const void* gradient, bool non_temporal, int64_t begin,
              int64_t end) {
  using A = Accumulator<T>;
  const int64_t cols = p.cols();
  const A smoothing = A(a.smoothing), each = smoothing / A(cols);
  alignas(64) A widened[kSpan];
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + offset_of_row(p.x, p.axis, row);
    T* dx = static_cast<T*>(a.dx) + offset_of_row(p.dx, p.axis, row);
    const int64_t target = target_of(p, a, row);
    if (target == p.ignore_index) {
      for (int64_t i = 0; i < cols; ++i) dx[i] = T(A(0));
      continue;
    }
    const bool known = 0 <= target && target < cols;
    const A lse = static_cast<const A*>(a.lse)[row];
    A g = static_cast<const A*>(gradient)[p.reduction == LossReduction::none ? row : 0];
    if (!known) g = A(INFINITY) - A(INFINITY);
    write_all<Order::lanes>(dx, cols, non_temporal, [&](int64_t i, int64_t count, A* out) {
      const A* v = read_span<Order::lanes>(x + i, widened, count);
      // The target's element is computed with its neighbours. A later store would load its cache line again.
      const int64_t lane = known && i <= target && target < i + count ? lane_of<T>(target - i) : -1;
      const A logit = lane < 0 ? 0 : v[lane];
      gradients(v, out, whole_steps(count), lse, g, each);
      if (lane >= 0) out[lane] = g * (elementary::exp(logit - lse) - (1 - smoothing + each));
    });
  }
  if (non_temporal) store_fence();
}

}  // namespace

extern const LossKernels loss_kernels;
const LossKernels loss_kernels = {{forward<float>, forward<double>, forward<float16>, forward<bfloat16>},
                                  {backward<float>, backward<double>, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
