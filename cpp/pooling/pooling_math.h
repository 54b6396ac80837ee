// SPDX-License-Identifier: Apache-2.0
// Pooling over windows of one to three spatial dimensions: one element of y, and one element of dx, written once for
// CPU and CUDA. Both gather, so there is nothing to add up between threads.
#pragma once
#include "cpp/core/half.h"
#include "cpp/core/team.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

enum class PoolingDirection : int64_t { forward, backward };
enum class PoolingMode : int64_t { max, avg, avg_exclude_padding };

struct PoolingProblem {
  PoolingDirection direction{};
  PoolingMode mode{};
  int64_t ceil_mode = 0;  // decided y's shape already; here for the problem's text
  int64_t window[kMaxSpatial]{1, 1, 1};
  SpatialAttributes spatial;
  TensorDesc x, dy, out;  // dy only backward; out is y or dx. One dtype; any strides
};

struct PoolingArgs {
  const void* x = nullptr;  // backward: read for the maxima only
  const void* dy = nullptr;
  void* out = nullptr;
};

namespace detail {

struct Range {
  int64_t begin, end;
  MINIDNN_HD int64_t size() const { return max_of<int64_t>(end - begin, 0); }
  MINIDNN_HD bool has(int64_t i) const { return begin <= i && i < end; }
  MINIDNN_HD bool operator==(const Range& r) const { return begin == r.begin && end == r.end; }
};

// An element by its indices; those past the rank are 0.
struct Position {
  int64_t n, c, at[kMaxSpatial];
  MINIDNN_HD int64_t offset_in(const TensorDesc& d) const {
    return n * d.stride[0] + c * d.stride[1] + at[0] * d.stride[2] + at[1] * d.stride[3] + at[2] * d.stride[4];
  }
};

// The i-th element of a tensor, counted in the order that its memory lies in: neighbouring threads touch neighbours.
MINIDNN_HD Position position_of(const TensorDesc& d, int64_t i) {
  Position p{};
  auto take = [&](int dim) {
    int64_t index = i % d.shape[dim];
    i /= d.shape[dim];
    return index;
  };
  bool channels_last = d.stride[1] < d.stride[d.rank - 1];
  if (channels_last) p.c = take(1);
  for (int k = kMaxSpatial - 1; k >= 0; --k)
    if (k + 2 < d.rank) p.at[k] = take(k + 2);
  if (!channels_last) p.c = take(1);
  p.n = i;
  return p;
}

// Of the window at output position `at`: the elements along dimension i whose index in x is from `low` to below `high`.
MINIDNN_HD Range taps(const PoolingProblem& p, int i, int64_t at, int64_t low, int64_t high) {
  int64_t first = p.spatial.input_index(i, at, 0), step = p.spatial.dilation[i], window = p.window[i];
  Range r{0, window};
  if (first < low) r.begin = ceil_div(low - first, step);
  if (first + (window - 1) * step >= high) r.end = first < high ? ceil_div(high - first, step) : 0;
  return r;
}
MINIDNN_HD Range taps_in_x(const PoolingProblem& p, int i, int64_t at) {
  return taps(p, i, at, 0, spatial_size(p.x, i));
}

// Calls visit(offset, number) for the window elements that fall into x, in row-major order, until it returns false: the
// offset is from the channel's first element, the number counts all elements of the window.
template <class Visit>
MINIDNN_HD bool each_tap(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], Visit&& visit) {
  Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]), r2 = taps_in_x(p, 2, at[2]);
  for (int64_t a = r0.begin; a < r0.end; ++a)
    for (int64_t b = r1.begin; b < r1.end; ++b)
      for (int64_t c = r2.begin; c < r2.end; ++c) {
        int64_t offset = p.spatial.input_index(0, at[0], a) * p.x.stride[2] +
                         p.spatial.input_index(1, at[1], b) * p.x.stride[3] +
                         p.spatial.input_index(2, at[2], c) * p.x.stride[4];
        if (!visit(offset, (a * p.window[1] + b) * p.window[2] + c)) return false;
      }
  return true;
}

// The elements along dimension i that an average counts.
template <PoolingMode mode>
MINIDNN_HD int64_t counted(const PoolingProblem& p, int i, int64_t at) {
  bool exclude = mode == PoolingMode::avg_exclude_padding;
  int64_t low = exclude ? 0 : -p.spatial.before[i], high = spatial_size(p.x, i) + (exclude ? 0 : p.spatial.after[i]);
  return taps(p, i, at, low, high).size();
}
// What an average over the window divides by; 1 where nothing counts.
template <PoolingMode mode>
MINIDNN_HD int64_t divisor(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial]) {
  int64_t count = 1;
  for (int i = 0; i < kMaxSpatial; ++i) count *= counted<mode>(p, i, at[i]);
  return max_of<int64_t>(count, 1);
}

// Whether element `own` of the window, with value `v`, is the first maximum: none before it is as large, none after it
// is larger, and a NaN is larger than all numbers.
template <class T>
MINIDNN_HD bool is_first_maximum(const PoolingProblem& p, const T* channel, const int64_t (&at)[kMaxSpatial],
                                 int64_t own, Accumulator<T> v) {
  using Acc = Accumulator<T>;
  return each_tap(p, at, [&](int64_t offset, int64_t number) {
    Acc u = Acc(channel[offset]);
    if (number < own) return !(u >= v || u != u);
    return number == own || !(u > v || (u != u && v == v));
  });
}

// The output positions along dimension i whose windows reach over index `at` of x; with a dilation they may miss it.
MINIDNN_HD Range windows_over(const PoolingProblem& p, int i, int64_t at) {
  int64_t padded = at + p.spatial.before[i], step = p.spatial.stride[i];
  int64_t reach = (p.window[i] - 1) * p.spatial.dilation[i];
  return {padded > reach ? ceil_div(padded - reach, step) : 0, min_of(padded / step + 1, spatial_size(p.dy, i))};
}
// The window element at output position `at` that falls on index `x_at` of x, or -1.
MINIDNN_HD int64_t tap_on(const PoolingProblem& p, int i, int64_t at, int64_t x_at) {
  int64_t reach = x_at - p.spatial.input_index(i, at, 0), step = p.spatial.dilation[i];
  if (step == 1) return reach;
  return reach % step ? -1 : reach / step;
}

}  // namespace detail

// Element i of y, in the order of its memory. A window that sees only padding gives -inf, or an average of 0.
template <class T, PoolingMode mode>
MINIDNN_HD void pool_forward_element(const PoolingProblem& p, const PoolingArgs& a, int64_t i) {
  using Acc = Accumulator<T>;
  detail::Position y = detail::position_of(p.out, i);
  const T* channel = static_cast<const T*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
  T* out = static_cast<T*>(a.out) + y.offset_in(p.out);
  if constexpr (mode == PoolingMode::max) {
    Acc largest = -INFINITY;
    detail::each_tap(p, y.at, [&](int64_t offset, int64_t) {
      largest = max_or_nan(largest, Acc(channel[offset]));
      return true;
    });
    *out = T(largest);
  } else {
    CarefulSum<Acc> sum;
    detail::each_tap(p, y.at, [&](int64_t offset, int64_t) {
      sum.add(Acc(channel[offset]));
      return true;
    });
    *out = T(sum.value() / Acc(detail::divisor<mode>(p, y.at)));
  }
}

// Element i of dx: the sum over the windows above it, in row-major order of y, of what each passes on.
template <class T, PoolingMode mode>
MINIDNN_HD void pool_backward_element(const PoolingProblem& p, const PoolingArgs& a, int64_t i) {
  using Acc = Accumulator<T>;
  detail::Position x = detail::position_of(p.out, i), y{x.n, x.c, {}};
  const T* channel = static_cast<const T*>(a.x) + x.n * p.x.stride[0] + x.c * p.x.stride[1];
  Acc v = mode == PoolingMode::max ? Acc(static_cast<const T*>(a.x)[x.offset_in(p.x)]) : Acc(0);
  detail::Range over[kMaxSpatial];
  for (int k = 0; k < kMaxSpatial; ++k) over[k] = detail::windows_over(p, k, x.at[k]);
  CarefulSum<Acc> sum;
  for (y.at[0] = over[0].begin; y.at[0] < over[0].end; ++y.at[0])
    for (y.at[1] = over[1].begin; y.at[1] < over[1].end; ++y.at[1])
      for (y.at[2] = over[2].begin; y.at[2] < over[2].end; ++y.at[2]) {
        int64_t tap = 0;
        bool on = true;
        for (int k = 0; k < kMaxSpatial; ++k) {
          int64_t r = detail::tap_on(p, k, y.at[k], x.at[k]);
          on = on && r >= 0;
          tap = tap * p.window[k] + r;
        }
        if (!on) continue;
        if constexpr (mode == PoolingMode::max)
          if (!detail::is_first_maximum<T>(p, channel, y.at, tap, v)) continue;
        Acc gradient = Acc(static_cast<const T*>(a.dy)[y.offset_in(p.dy)]);
        sum.add(mode == PoolingMode::max ? gradient : gradient / Acc(detail::divisor<mode>(p, y.at)));
      }
  static_cast<T*>(a.out)[x.offset_in(p.out)] = T(sum.value());
}

}  // namespace minidnn
