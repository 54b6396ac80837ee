// SPDX-License-Identifier: Apache-2.0
// Softmax of contiguous rows, one at a time. Vectors hold elements of one row. A few terms are added directly, and
// their sum is added to a compensated sum.
#include "cpp/core/host_device/team.h"
#include "cpp/simd/convert.h"
#include "cpp/softmax/cpu/log_gradient.h"
#include "cpp/softmax/cpu/vectorized_kernel.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// The number of vectors that are added directly before their sum is added to the compensated sum.
constexpr int kTree = 4;

template <class A> using Sum = CompensatedSum<Vector<A>>;  // a compensated sum in each lane of a vector

template <class A> inline __attribute__((always_inline)) A total(const Sum<A>& s) {
  return reduce_lanes(s.value(), [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

// Adds the vectors f(0), f(kLane), f(2 kLane), ... up to n, a multiple of kLane.
template <class A, class F> inline __attribute__((always_inline)) void add_all(Sum<A>& sum, int64_t n, F f) {
  constexpr int64_t kLane = kLanes<A>;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
    sum.add((f(i) + f(i + kLane)) + (f(i + 2 * kLane) + f(i + 3 * kLane)));
  for (; i < n; i += kLane) sum.add(f(i));
}

// Returns the maximum of scale * x over n elements of a row, or `so_far` if that is larger. It may miss a NaN, but then
// the sum of the exponentials of the row is NaN.
template <class A> A largest_of(const A* x, int64_t n, A scale, A so_far) {
  constexpr int64_t kLane = kLanes<A>;
  using V = Vector<A>;
  V largest[kTree];
  for (V& m : largest) m = V{} + so_far;
  int64_t i = 0;
  for (; i + kTree * kLane <= n; i += kTree * kLane)
#pragma GCC unroll 4
    for (int k = 0; k < kTree; ++k) {
      V v = load(x + i + k * kLane) * scale;
      largest[k] = largest[k] > v ? largest[k] : v;
    }
  for (; i < n; i += kLane) {
    V v = load(x + i) * scale;
    largest[0] = largest[0] > v ? largest[0] : v;
  }
  for (int k = 1; k < kTree; ++k) largest[0] = largest[0] > largest[k] ? largest[0] : largest[k];
  return reduce_lanes(largest[0], [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

template <class A> void exponentials(const A* x, A* e, int64_t n, A scale, A largest) {
  n &= -kStep;
#pragma GCC ivdep  // e is x itself or does not overlap x
  for (int64_t i = 0; i < n; ++i) e[i] = elementary::exp_of_negative(x[i] * scale - largest);
}
template <class A> void multiply(const A* e, A* y, int64_t n, A factor) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = e[i] * factor;
}
template <class A> void shift(const A* x, A* y, int64_t n, A scale, A largest, A log_sum) {
  n &= -kStep;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * scale - largest) - log_sum;
}

// A row is padded with padding(), which usually gives the exponential 0. But if scale is 0, each padding element adds 1
// to the sum, so ones_of_padding() is subtracted from it.
template <class A> A padding(A scale) { return scale > 0 ? -INFINITY : scale < 0 ? INFINITY : 0; }
template <class A> A ones_of_padding(int64_t cols, A scale) { return scale == 0 ? A(whole_steps(cols) - cols) : 0; }

// SoftmaxSums in the type of the arithmetic
template <class A> struct Sums {
  A largest, sum;
};

// Computes the maximum of scale * x and the sum of the exponentials. read(i, count) returns elements from i on as
// padded floats, and exps(i, count, largest) their exponentials.
template <class A, class Read, class Exps>
inline __attribute__((always_inline)) Sums<A> sums_of_row(int64_t cols, A scale, Read read, Exps exps) {
  A largest = -INFINITY;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i);
    largest = largest_of(read(i, count), whole_steps(count), scale, largest);
  }
  Sum<A> sum;
  for (int64_t i = 0; i < cols; i += kSpan) {
    const int64_t count = min_of(kSpan, cols - i);
    const A* e = exps(i, count, largest);
    add_all<A>(sum, whole_steps(count), [&](int64_t at) __attribute__((always_inline)) { return load(e + at); });
  }
  return {largest, total<A>(sum) - ones_of_padding(cols, scale)};
}

SoftmaxSums row_exponentials(const float* x, float* to, int64_t n, float scale) {
  alignas(64) float padded[kSpan], span[kSpan];
  auto read = [&](int64_t i, int64_t count) { return read_span<Order::memory>(x + i, padded, count, padding(scale)); };
  const auto sums = sums_of_row(n, scale, read, [&](int64_t i, int64_t count, float largest) -> const float* {
    float* const e = to && count % kStep == 0 ? to + i : span;
    exponentials(read(i, count), e, whole_steps(count), scale, largest);
    if (to && e == span) __builtin_memcpy(to + i, span, size_t(count) * sizeof(float));
    return e;
  });
  return {sums.largest, sums.sum};
}

// Computes softmax or log-softmax of a row. If `masked`, `scratch` already holds scale * x with the mask, padded with
// -inf.
template <Order order, class T>
void forward_row(const T* x, T* y, const SoftmaxTiling& tiling, Accumulator<T> scale, Accumulator<T>* scratch,
                 bool masked = false) {
  using A = Accumulator<T>;
  const int64_t cols = tiling.cols;
  // `kept`: whether `scratch` can hold the row as floats. `copied`: whether it holds the row when exponentials are
  // computed.
  const bool kept = tiling.scratch_numbers > kSpan;
  const bool copied = masked || (kept && !kIsWide<T>);
  auto read = [&](int64_t i, int64_t count) -> const A* {
    return masked ? scratch + i : read_span<order>(x + i, kept ? scratch + i : scratch, count, padding(scale));
  };
  alignas(64) A span[kSpan];
  const Sums<A> sums = sums_of_row(cols, scale, read, [&](int64_t i, int64_t count, A largest) {
    A* const e = kept && !tiling.log ? scratch + i : span;
    exponentials(copied ? scratch + i : read(i, count), e, whole_steps(count), scale, largest);
    return e;
  });
  const A largest = sums.largest;
  if (tiling.log) {
    const A log_sum = maths::log(sums.sum);
    write_all<order>(y, cols, tiling.non_temporal, [&](int64_t i, int64_t count, A* out) {
      shift(copied ? scratch + i : read(i, count), out, whole_steps(count), scale, largest, log_sum);
    });
  } else {
    const A factor = A(1) / sums.sum;
    write_all<order>(y, cols, tiling.non_temporal, [&](int64_t i, int64_t count, A* out) {
      const int64_t whole = whole_steps(count);
      if (!kept) exponentials(read(i, count), out, whole, scale, largest);
      multiply(kept ? scratch + i : out, out, whole, factor);
    });
  }
}

// Writes scale * x with the mask applied to `scratch`, for one row. The result has numbers in memory order.
template <class T>
void mask_row(const T* x, const void* mask, int64_t at, const SoftmaxTiling& tiling, Accumulator<T> scale,
              Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  for (int64_t i = 0; i < tiling.cols; i += kSpan) {
    const int64_t count = min_of(kSpan, tiling.cols - i), whole = whole_steps(count);
    alignas(64) A values[kSpan], added[kSpan];
    const A* v = read_span<Order::memory>(x + i, values, count, -INFINITY);
    A* const to = scratch + i;
    if (tiling.masked == SoftmaxMask::add) {
      const A* add = read_span<Order::memory>(static_cast<const T*>(mask) + at + i, added, count);
      for (int64_t j = 0; j < count; ++j) to[j] = v[j] * scale + add[j];
    } else {
      const uint8_t* keep = static_cast<const uint8_t*>(mask) + at + i;
      for (int64_t j = 0; j < count; ++j) to[j] = keep[j] ? v[j] * scale : -INFINITY;
    }
    for (int64_t j = count; j < whole; ++j) to[j] = -INFINITY;
  }
}

// Adds the terms of the gradient's sum: dy for log-softmax, dy * y for softmax.
template <class T> void add_terms(Sum<float>& sum, const T* y, const T* dy, int64_t n, bool log) {
  constexpr int64_t kPair = 2 * kLanes<float>;
  auto term = [&](int64_t i) __attribute__((always_inline)) {
    Pair g = load_pair(dy + i);
    if (log) return g.first + g.second;
    Pair p = load_pair(y + i);
    return g.first * p.first + g.second * p.second;
  };
  int64_t i = 0;
  // Four independent sums, so that an addition need not wait for the previous one.
  if (constexpr int64_t kStride = 8 * kPair; n >= kStride) {
    Sum<float> sums[4]{sum};
    for (; i + kStride <= n; i += kStride)
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[k].add(term(i + 2 * k * kPair) + term(i + (2 * k + 1) * kPair));
    sums[0].add(sums[1]);
    sums[2].add(sums[3]);
    sums[0].add(sums[2]);
    sum = sums[0];
  }
  for (; i + 2 * kPair <= n; i += 2 * kPair) sum.add(term(i) + term(i + kPair));
  for (; i < n; i += kPair) sum.add(term(i));
}
[[maybe_unused]] void add_terms(Sum<double>& sum, const double* y, const double* dy, int64_t n, bool log) {
  add_all<double>(sum, n, [=](int64_t i) __attribute__((always_inline)) {
    return log ? load(dy + i) : load(dy + i) * load(y + i);
  });
}

template <class T> Accumulator<T> gradient_sum(const T* y, const T* dy, int64_t cols, bool log) {
  const int64_t whole = cols & -kStep;
  Sum<Accumulator<T>> sum;
  add_terms(sum, y, dy, whole, log);
  if (whole < cols) {
    alignas(64) T ys[kStep], dys[kStep];
    load_step(y + whole, ys, cols - whole);
    load_step(dy + whole, dys, cols - whole);
    add_terms(sum, ys, dys, kStep, log);
  }
  return total<Accumulator<T>>(sum);
}
// Computes dx[i] = f(y[i], dy[i]) for n elements, a multiple of kStep.
template <class T, class F>
inline __attribute__((always_inline)) void each_gradient(const T* y, const T* dy, T* dx, int64_t n, F f) {
  each(y, dy, dx, n, f);
}
template <class F>
inline __attribute__((always_inline)) void each_gradient(const float16* y, const float16* dy, float16* dx, int64_t n,
                                                         F f) {
  for (int64_t i = 0; i < n; i += kFloats) store_floats(dx + i, f(load_floats(y + i), load_floats(dy + i)));
}
template <class T>
void gradient(const T* y, const T* dy, T* dx, int64_t n, bool log, Accumulator<T> all, Accumulator<T> scale,
              bool non_temporal) {
  // map_all() has five calls of a loop, of which one is hot.
  if (log)
    map_all(y, dy, dx, n, non_temporal, [=](const T* y, const T* dy, T* dx, int64_t n) __attribute__((noinline)) {
      each_gradient(y, dy, dx, n,
                    [=](auto y, auto dy) __attribute__((always_inline)) { return log_gradient(y, dy, all) * scale; });
    });
  else
    map_all(y, dy, dx, n, non_temporal, [=](const T* y, const T* dy, T* dx, int64_t n) __attribute__((noinline)) {
      each_gradient(y, dy, dx, n,
                    [=](auto y, auto dy) __attribute__((always_inline)) { return y * (dy - all) * scale; });
    });
}
void gradient_in_cache(const float* y, const float* dy, float* dx, int64_t n, bool log, float sum, float scale) {
  gradient(y, dy, dx, n, log, sum, scale, false);
}

template <class T>
void forward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void* memory, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  const A scale = A(a.scale);
  const auto scratch = static_cast<A*>(memory);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.in) + tiling.in.offset_of(row);
    T* y = static_cast<T*>(a.out) + tiling.out.offset_of(row);
    const bool masked = tiling.masked != SoftmaxMask::none;
    if (masked) mask_row(x, a.mask, tiling.mask.offset_of(row), tiling, scale, scratch);
    // Masked rows are in memory order. Only for bfloat16 is it another order than that of lanes.
    constexpr Order kMasked = kIsInterleaved<T> ? Order::memory : Order::lanes;
    if (masked) forward_row<kMasked>(x, y, tiling, A(1), scratch, true);
    else forward_row<Order::lanes>(x, y, tiling, scale, scratch);
  }
  if (tiling.non_temporal) store_fence();
}

template <class T>
void backward(const SoftmaxTiling& tiling, const SoftmaxArgs& a, void*, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* y = static_cast<const T*>(a.in) + tiling.in.offset_of(row);
    const T* dy = static_cast<const T*>(a.dy) + tiling.dy.offset_of(row);
    T* dx = static_cast<T*>(a.out) + tiling.out.offset_of(row);
    const auto sum = gradient_sum(y, dy, tiling.cols, tiling.log);
    gradient(y, dy, dx, tiling.cols, tiling.log, sum, Accumulator<T>(a.scale), tiling.non_temporal);
  }
  if (tiling.non_temporal) store_fence();
}

}  // namespace

extern const SoftmaxRowSteps softmax_row_steps;
const SoftmaxRowSteps softmax_row_steps = {row_exponentials, gradient_sum<float>, gradient_in_cache};

extern const SoftmaxLoops softmax_row_loops;
const SoftmaxLoops softmax_row_loops = {{forward<float>, forward<double>, forward<float16>, forward<bfloat16>},
                                        {backward<float>, backward<double>, backward<float16>, backward<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
