// SPDX-License-Identifier: Apache-2.0
// Softmax of one row along the axis, and its gradient. A team of threads (one thread on a CPU) computes a row. Rows are
// numbered in row-major order of the other dimensions.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"

namespace minidnn {

enum class SoftmaxDirection : int64_t { forward, backward };

// How the mask is applied to scale * x before the exponentials.
enum class SoftmaxMask : int64_t {
  none,
  add,   // a mask with the dtype of x, which is added to scale * x
  keep,  // a boolean mask: where it is false, the element of scale * x becomes -inf
};

struct SoftmaxProblem {
  SoftmaxDirection direction{};
  int64_t log = 0;     // 1 for log-softmax, 0 for softmax
  int64_t scaled = 0;  // 1 if the scale is not 1, else 0
  int64_t axis = 0;    // the axis of softmax, from 0 to rank - 1
  // The kind of mask of a forward call. The gradient needs no mask, because y shows which elements are masked.
  SoftmaxMask masked{};
  // The bytes to which the addresses of in, dy, out and mask are aligned, at most 16. It is always 16 on a CPU.
  int64_t alignment = 16;
  // In the forward function, `in` is x, `out` is y, and dy is absent. In the backward function, `in` is y, and `out` is
  // dx. The three tensors have the same dtype and shape, and any strides.
  TensorDesc in, dy, out;
  TensorDesc mask;  // the mask has the shape of x; broadcast dimensions have stride 0

  MINIDNN_HD int64_t cols() const { return in.shape[axis]; }
  // Returns the number of rows. The axis must not have size 0.
  MINIDNN_HD int64_t rows() const { return in.numel() / cols(); }
};

// The dimensions of a tensor except the axis, and perhaps except the innermost ones: the innermost dimension in the
// memory of x first. offset_of() returns the offset of a row. Rows are numbered in the memory order of x.
struct RowLayout {
  int64_t dims = 0, size[kMaxRank]{}, stride[kMaxRank]{};
  int64_t axis = 0;  // the stride of the axis

  MINIDNN_HD int64_t offset_of(int64_t row) const {
    int64_t offset = 0;
    for (int64_t i = 0; i < dims; ++i) {
      if (i + 1 == dims) return offset + row * stride[i];
      offset += row % size[i] * stride[i];
      row /= size[i];
    }
    return offset;
  }
};

// Up to this length, CPU engines compute contiguous rows in groups, because starting the loops over one row takes
// longer than a row.
constexpr int64_t kLongestShortRow = 128;

// The numbers of a row from which its elements are computed: its maximum, and the sum of exp(x - largest).
struct SoftmaxSums {
  float largest, sum;
};

struct SoftmaxArgs {
  const void* in = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* mask = nullptr;
  double scale = 1;
};

namespace detail {

// A row of a tensor. Its elements are `step` elements apart in memory.
template <class T>
struct Row {
  T* first;
  int64_t step;
  MINIDNN_HD T& operator[](int64_t i) const { return first[i * step]; }
};

template <class T>
MINIDNN_HD Row<T> row_of(T* data, const TensorDesc& d, int64_t axis, int64_t row) {
  for (int i = int(d.rank) - 1; i >= 0; --i) {
    if (i == axis) continue;
    data += row % d.shape[i] * d.stride[i];
    row /= d.shape[i];
  }
  return {data, d.stride[axis]};
}

}  // namespace detail

namespace detail {

// The elements of a row of x: as they are (Plain), or as scale * x with the mask applied (Masked).
template <class T> struct Plain {
  Row<const T> x;
  MINIDNN_HD Accumulator<T> operator[](int64_t i) const { return Accumulator<T>(x[i]); }
};
template <class T> struct Masked {
  Row<const T> x;
  SoftmaxMask kind;
  Accumulator<T> scale;
  Row<const T> add;
  Row<const uint8_t> keep;
  MINIDNN_HD Accumulator<T> operator[](int64_t i) const {
    using Acc = Accumulator<T>;
    if (kind == SoftmaxMask::keep && !keep[i]) return Acc(-INFINITY);
    // rounded_product() rounds before the addition, which some compilers would fuse with a plain product.
    const Acc scaled = maths::rounded_product(Acc(x[i]), scale);
    return kind == SoftmaxMask::add ? scaled + Acc(add[i]) : scaled;
  }
};

}  // namespace detail

// Computes y = exp(x - max) / sum, or x - max - log(sum) for log-softmax. A row with a NaN or +inf, or with only -inf,
// gives NaN. y may be x, because each thread writes only elements that no other thread reads later.
template <class T, bool log, class X, class Team>
MINIDNN_HD void softmax_forward_row(X x, detail::Row<T> y, int64_t cols, Team& team) {
  using Acc = Accumulator<T>;
  Acc largest = -INFINITY;
  for (int64_t i = team.rank(); i < cols; i += team.size()) largest = max_or_nan(largest, x[i]);
  largest = team.max(largest);
  CompensatedSum<Acc> partial;
  for (int64_t i = team.rank(); i < cols; i += team.size()) partial.add(maths::exp(x[i] - largest));
  Acc sum = team.sum(partial.value());
  Acc log_sum = log ? maths::log(sum) : Acc(0);
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    Acc shifted = x[i] - largest;
    y[i] = T(log ? shifted - log_sum : maths::exp(shifted) / sum);
  }
}

// Computes the gradient of a row. For softmax, dx = scale y (dy - sum(dy y)). For log-softmax, dx = scale (dy - exp(y)
// sum(dy)), but dx = 0 where y is -inf, because a masked element has no gradient. dx may be the same memory as dy or y.
template <class T, bool log, class Team>
MINIDNN_HD void softmax_backward_row(detail::Row<const T> y, detail::Row<const T> dy, detail::Row<T> dx, int64_t cols,
                                     Accumulator<T> scale, Team& team) {
  using Acc = Accumulator<T>;
  CompensatedSum<Acc> partial;
  for (int64_t i = team.rank(); i < cols; i += team.size()) partial.add(log ? Acc(dy[i]) : Acc(dy[i]) * Acc(y[i]));
  Acc sum = team.sum(partial.value());
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    Acc result = Acc(y[i]), gradient = Acc(dy[i]);
    if (log) dx[i] = T(result == Acc(-INFINITY) ? Acc(0) : (gradient - maths::exp(result) * sum) * scale);
    else dx[i] = T(result * (gradient - sum) * scale);
  }
}

template <class T, SoftmaxDirection direction, bool log, class Team>
MINIDNN_HD void softmax_row(const SoftmaxProblem& p, const SoftmaxArgs& a, int64_t row, Team& team) {
  auto in = detail::row_of(static_cast<const T*>(a.in), p.in, p.axis, row);
  auto out = detail::row_of(static_cast<T*>(a.out), p.out, p.axis, row);
  const auto scale = Accumulator<T>(a.scale);
  if constexpr (direction == SoftmaxDirection::forward) {
    if (!p.scaled && p.masked == SoftmaxMask::none)
      return softmax_forward_row<T, log>(detail::Plain<T>{in}, out, p.cols(), team);
    detail::Masked<T> x{in, p.masked, scale, {}, {}};
    if (p.masked == SoftmaxMask::add) x.add = detail::row_of(static_cast<const T*>(a.mask), p.mask, p.axis, row);
    if (p.masked == SoftmaxMask::keep)
      x.keep = detail::row_of(static_cast<const uint8_t*>(a.mask), p.mask, p.axis, row);
    softmax_forward_row<T, log>(x, out, p.cols(), team);
  } else {
    auto dy = detail::row_of(static_cast<const T*>(a.dy), p.dy, p.axis, row);
    softmax_backward_row<T, log>(in, dy, out, p.cols(), scale, team);
  }
}

}  // namespace minidnn
