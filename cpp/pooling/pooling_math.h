// SPDX-License-Identifier: Apache-2.0
// Pooling over windows with one to three spatial dimensions, for CPU and CUDA. Each function computes a whole element
// of y or of dx, so two threads never add to the same element.
#pragma once
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/team.h"
#include "cpp/engine/spatial_math.h"

namespace minidnn {

enum class PoolingDirection : int64_t { forward, backward };
enum class PoolingMode : int64_t { max, avg, avg_exclude_padding, lp };

struct PoolingProblem {
  PoolingDirection direction{};
  PoolingMode mode{};
  // 1 if the size of y was rounded up, else 0. The shape of y already includes the rounding; this member is for the
  // text of the call.
  int64_t ceil_mode = 0;
  int64_t window[kMaxSpatial]{1, 1, 1};
  SpatialAttributes spatial;
  // Only the backward function uses dy. `out` describes y in the forward function, and dx in the backward function. All
  // tensors have the same dtype, and any strides.
  TensorDesc x, dy, out;
  int64_t norm = 0;  // the exponent of lp pooling
  // 1 for adaptive pooling, in which the windows follow from the sizes of x and y alone; else 0. If it is 1, `window`
  // is an upper bound of the sizes of windows.
  int64_t adaptive = 0;
  // The bytes to which the addresses of all tensors are aligned, at most 16. It is always 16 on a CPU.
  int64_t alignment = 16;
  TensorDesc y;        // only the gradient of lp pooling uses y
  TensorDesc indices;  // the indices of the maxima, with the shape of y; rank 0 means no indices
};

struct PoolingArgs {
  const void* x = nullptr;  // the gradient reads x for lp pooling, and for max pooling without indices
  const void* dy = nullptr;
  void* out = nullptr;
  const void* y = nullptr;  // only the gradient of lp pooling reads y
  // The indices of the maxima (int32 or int64), which the forward function writes and the backward function reads.
  void* indices = nullptr;
};

namespace detail {

struct Range {
  int64_t begin, end;
  MINIDNN_HD int64_t size() const { return max_of<int64_t>(end - begin, 0); }
  MINIDNN_HD bool has(int64_t i) const { return begin <= i && i < end; }
  MINIDNN_HD bool operator==(const Range& r) const { return begin == r.begin && end == r.end; }
};

// The coordinates of an element of a tensor. They are 0 for dimensions that the tensor does not have.
struct Position {
  int64_t n, c, at[kMaxSpatial];
  MINIDNN_HD int64_t offset_in(const TensorDesc& d) const {
    return n * d.stride[0] + c * d.stride[1] + at[0] * d.stride[2] + at[1] * d.stride[3] + at[2] * d.stride[4];
  }
};

// Returns the coordinates of the i-th element of a tensor, counted in memory order. So neighbouring threads access
// neighbouring elements.
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

// first_of() returns the index in x (maybe in the padding) of the first element of the window at output position `at`,
// and window_at() the size of the window. Adaptive windows begin at floor(at size / windows) and end before ceil((at +
// 1) size / windows).
MINIDNN_HD int64_t windows_along(const PoolingProblem& p, int i) {
  return spatial_size(p.direction == PoolingDirection::backward ? p.dy : p.out, i);
}
MINIDNN_HD int64_t first_of(const PoolingProblem& p, int i, int64_t at) {
  if (p.adaptive) return at * spatial_size(p.x, i) / windows_along(p, i);
  return p.spatial.input_index(i, at, 0);
}
MINIDNN_HD int64_t window_at(const PoolingProblem& p, int i, int64_t at) {
  if (p.adaptive) return ceil_div((at + 1) * spatial_size(p.x, i), windows_along(p, i)) - first_of(p, i, at);
  return p.window[i];
}

// Returns the elements of the window at output position `at`, along dimension i, whose index in x is in [low, high).
MINIDNN_HD Range taps(const PoolingProblem& p, int i, int64_t at, int64_t low, int64_t high) {
  int64_t first = first_of(p, i, at), step = p.spatial.dilation[i], window = window_at(p, i, at);
  Range r{0, window};
  if (first < low) r.begin = ceil_div(low - first, step);
  if (first + (window - 1) * step >= high) r.end = first < high ? ceil_div(high - first, step) : 0;
  return r;
}
MINIDNN_HD Range taps_in_x(const PoolingProblem& p, int i, int64_t at) {
  return taps(p, i, at, 0, spatial_size(p.x, i));
}

// Calls visit(offset, number, index) for each window element inside x, in row-major order, until it returns false.
// `offset` is relative to the channel, `number` is the index within the window, and `index` that within the channel.
template <class Visit>
MINIDNN_HD bool each_tap(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial], Visit&& visit) {
  Range r0 = taps_in_x(p, 0, at[0]), r1 = taps_in_x(p, 1, at[1]), r2 = taps_in_x(p, 2, at[2]);
  int64_t first[kMaxSpatial] = {first_of(p, 0, at[0]), first_of(p, 1, at[1]), first_of(p, 2, at[2])};
  for (int64_t a = r0.begin; a < r0.end; ++a)
    for (int64_t b = r1.begin; b < r1.end; ++b)
      for (int64_t c = r2.begin; c < r2.end; ++c) {
        int64_t i = first[0] + a * p.spatial.dilation[0], j = first[1] + b * p.spatial.dilation[1],
                k = first[2] + c * p.spatial.dilation[2];
        int64_t offset = i * p.x.stride[2] + j * p.x.stride[3] + k * p.x.stride[4];
        int64_t index = (i * spatial_size(p.x, 1) + j) * spatial_size(p.x, 2) + k;
        if (!visit(offset, (a * p.window[1] + b) * p.window[2] + c, index)) return false;
      }
  return true;
}

// Returns how many elements of a window along dimension i count for the divisor of an average.
template <PoolingMode mode>
MINIDNN_HD int64_t counted(const PoolingProblem& p, int i, int64_t at) {
  bool exclude = mode == PoolingMode::avg_exclude_padding;
  int64_t low = exclude ? 0 : -p.spatial.before[i], high = spatial_size(p.x, i) + (exclude ? 0 : p.spatial.after[i]);
  return taps(p, i, at, low, high).size();
}
// Returns the divisor of the average over a window. If no element of the window counts, it is 1.
template <PoolingMode mode>
MINIDNN_HD int64_t divisor(const PoolingProblem& p, const int64_t (&at)[kMaxSpatial]) {
  int64_t count = 1;
  for (int i = 0; i < kMaxSpatial; ++i) count *= counted<mode>(p, i, at[i]);
  return max_of<int64_t>(count, 1);
}

// Whether element `own` of a window, with the value v, is its first maximum. A NaN is larger than every number.
template <class T>
MINIDNN_HD bool is_first_maximum(const PoolingProblem& p, const T* channel, const int64_t (&at)[kMaxSpatial],
                                 int64_t own, Accumulator<T> v) {
  using Acc = Accumulator<T>;
  return each_tap(p, at, [&](int64_t offset, int64_t number, int64_t) {
    Acc u = Acc(channel[offset]);
    if (number < own) return !(u >= v || u != u);
    return number == own || !(u > v || (u != u && v == v));
  });
}

// Returns the output positions along dimension i whose windows extend over index `at` of x, even if dilation skips it.
MINIDNN_HD Range windows_over(const PoolingProblem& p, int i, int64_t at) {
  if (p.adaptive) {
    int64_t size = spatial_size(p.x, i), windows = windows_along(p, i);
    return {at * windows / size, ceil_div((at + 1) * windows, size)};
  }
  int64_t padded = at + p.spatial.before[i], step = p.spatial.stride[i];
  int64_t reach = (p.window[i] - 1) * p.spatial.dilation[i];
  return {padded > reach ? ceil_div(padded - reach, step) : 0, min_of(padded / step + 1, spatial_size(p.dy, i))};
}
// Returns the index within the window at output position `at`, along dimension i, of element `x_at` of x, or -1 if the
// dilated window skips it.
MINIDNN_HD int64_t tap_on(const PoolingProblem& p, int i, int64_t at, int64_t x_at) {
  int64_t reach = x_at - first_of(p, i, at), step = p.spatial.dilation[i];
  if (step == 1) return reach;
  return reach % step ? -1 : reach / step;
}

// power() returns |v| to the power of an exponent that is not negative. root() returns a root of a number that is not
// negative.
template <class Acc> MINIDNN_HD Acc power(Acc v, int64_t exponent) {
  v = v < 0 ? -v : v;
  Acc product = 1;
  for (int64_t i = 0; i < exponent; ++i) product *= v;
  return product;
}
template <class Acc> MINIDNN_HD Acc root(Acc v, int64_t degree) {
  if (degree == 1) return v;
  return Acc(degree == 2 ? sqrt(double(v)) : pow(double(v), 1 / double(degree)));
}

MINIDNN_HD int64_t index_at(const PoolingProblem& p, const PoolingArgs& a, const Position& y) {
  int64_t at = y.offset_in(p.indices);
  return p.indices.dtype == DType::int64 ? static_cast<const int64_t*>(a.indices)[at]
                                         : int64_t(static_cast<const int32_t*>(a.indices)[at]);
}
MINIDNN_HD void put_index(const PoolingProblem& p, const PoolingArgs& a, const Position& y, int64_t index) {
  int64_t at = y.offset_in(p.indices);
  if (p.indices.dtype == DType::int64) static_cast<int64_t*>(a.indices)[at] = index;
  else static_cast<int32_t*>(a.indices)[at] = int32_t(index);
}

}  // namespace detail

// Computes the i-th element of y, counted in memory order. If a window contains only padding, its maximum is -inf and
// its average is 0.
template <class T, PoolingMode mode>
MINIDNN_HD void pool_forward_element(const PoolingProblem& p, const PoolingArgs& a, int64_t i) {
  using Acc = Accumulator<T>;
  detail::Position y = detail::position_of(p.out, i);
  const T* channel = static_cast<const T*>(a.x) + y.n * p.x.stride[0] + y.c * p.x.stride[1];
  T* out = static_cast<T*>(a.out) + y.offset_in(p.out);
  if constexpr (mode == PoolingMode::max) {
    Acc largest = -INFINITY;
    int64_t where = -1;
    detail::each_tap(p, y.at, [&](int64_t offset, int64_t, int64_t index) {
      Acc v = Acc(channel[offset]);
      if (where < 0 || v > largest || (v != v && largest == largest)) {
        largest = v;
        where = index;
      }
      return true;
    });
    *out = T(largest);
    if (p.indices.rank) detail::put_index(p, a, y, where);
  } else if constexpr (mode == PoolingMode::lp) {
    CompensatedSum<Acc> sum;
    detail::each_tap(p, y.at, [&](int64_t offset, int64_t, int64_t) {
      sum.add(detail::power(Acc(channel[offset]), p.norm));
      return true;
    });
    *out = T(detail::root(sum.value(), p.norm));
  } else {
    CompensatedSum<Acc> sum;
    detail::each_tap(p, y.at, [&](int64_t offset, int64_t, int64_t) {
      sum.add(Acc(channel[offset]));
      return true;
    });
    *out = T(sum.value() / Acc(detail::divisor<mode>(p, y.at)));
  }
}

// Computes the i-th element of dx, counted in memory order: the sum of the gradients of all windows over the element,
// in row-major order of y.
template <class T, PoolingMode mode>
MINIDNN_HD void pool_backward_element(const PoolingProblem& p, const PoolingArgs& a, int64_t i) {
  using Acc = Accumulator<T>;
  detail::Position x = detail::position_of(p.out, i), y{x.n, x.c, {}};
  const T* channel = static_cast<const T*>(a.x) + x.n * p.x.stride[0] + x.c * p.x.stride[1];
  bool has_index = p.indices.rank > 0, reads_x = mode == PoolingMode::lp || (mode == PoolingMode::max && !has_index);
  int64_t own = (x.at[0] * spatial_size(p.x, 1) + x.at[1]) * spatial_size(p.x, 2) + x.at[2];
  Acc v = reads_x ? Acc(static_cast<const T*>(a.x)[x.offset_in(p.x)]) : Acc(0);
  detail::Range over[kMaxSpatial];
  for (int k = 0; k < kMaxSpatial; ++k) over[k] = detail::windows_over(p, k, x.at[k]);
  CompensatedSum<Acc> sum;
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
        if constexpr (mode == PoolingMode::max) {
          if (has_index) {
            if (detail::index_at(p, a, y) != own) continue;
          } else if (!detail::is_first_maximum<T>(p, channel, y.at, tap, v)) {
            continue;
          }
        }
        Acc gradient = Acc(static_cast<const T*>(a.dy)[y.offset_in(p.dy)]);
        if constexpr (mode == PoolingMode::max) {
          sum.add(gradient);
        } else if constexpr (mode == PoolingMode::lp) {
          // The derivative of lp pooling with respect to v is (|v| / norm)^(exponent - 1), with the sign of v. It is 0
          // if all elements of the window are 0.
          Acc length = Acc(static_cast<const T*>(a.y)[y.offset_in(p.y)]);
          if (length == 0) continue;
          Acc ratio = detail::power(v / length, p.norm - 1);
          sum.add(v == 0 ? Acc(0) : v < 0 ? -gradient * ratio : v > 0 ? gradient * ratio : v);
        } else {
          sum.add(gradient / Acc(detail::divisor<mode>(p, y.at)));
        }
      }
  static_cast<T*>(a.out)[x.offset_in(p.out)] = T(sum.value());
}

}  // namespace minidnn
