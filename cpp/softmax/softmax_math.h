// SPDX-License-Identifier: Apache-2.0
// Softmax of one row by a team, forward and backward, written once for CPU and CUDA. A row runs along the axis; rows
// are numbered in row-major order of the other dimensions.
#pragma once
#include "cpp/core/desc.h"
#include "cpp/core/half.h"
#include "cpp/core/maths.h"
#include "cpp/core/team.h"

namespace minidnn {

enum class SoftmaxDirection : int64_t { forward, backward };

struct SoftmaxProblem {
  SoftmaxDirection direction{};
  int64_t log = 0;         // 1: log-softmax
  int64_t axis = 0;        // from 0 to rank - 1
  TensorDesc in, dy, out;  // forward: x, none, y; backward: y, dy, dx. One dtype and one shape; any strides

  MINIDNN_HD int64_t cols() const { return in.shape[axis]; }
  MINIDNN_HD int64_t rows() const { return in.numel() / cols(); }  // asked only where there are elements
};

struct SoftmaxArgs {
  const void* in = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
};

namespace detail {

// The elements of a row, `step` apart.
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

// y = exp(x - max) / sum, or x - max - log(sum). A +inf, or nothing but -inf, makes Inf - Inf: the row is NaN, as it is
// where a NaN is in x. A member writes only elements that it alone still reads: y may be x.
template <class T, bool log, class Team>
MINIDNN_HD void softmax_forward_row(detail::Row<const T> x, detail::Row<T> y, int64_t cols, Team& team) {
  using Acc = Accumulator<T>;
  Acc largest = -INFINITY;
  for (int64_t i = team.rank(); i < cols; i += team.size()) largest = max_or_nan(largest, Acc(x[i]));
  largest = team.max(largest);
  CarefulSum<Acc> partial;
  for (int64_t i = team.rank(); i < cols; i += team.size()) partial.add(maths::exp(Acc(x[i]) - largest));
  Acc sum = team.sum(partial.value());
  Acc log_sum = log ? maths::log(sum) : Acc(0);
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    Acc shifted = Acc(x[i]) - largest;
    y[i] = T(log ? shifted - log_sum : maths::exp(shifted) / sum);
  }
}

// dx = y (dy - sum of dy y), or dy - exp(y) sum of dy. dx may be dy or y.
template <class T, bool log, class Team>
MINIDNN_HD void softmax_backward_row(detail::Row<const T> y, detail::Row<const T> dy, detail::Row<T> dx, int64_t cols,
                                     Team& team) {
  using Acc = Accumulator<T>;
  CarefulSum<Acc> partial;
  for (int64_t i = team.rank(); i < cols; i += team.size()) partial.add(log ? Acc(dy[i]) : Acc(dy[i]) * Acc(y[i]));
  Acc sum = team.sum(partial.value());
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    Acc result = Acc(y[i]), gradient = Acc(dy[i]);
    dx[i] = T(log ? gradient - maths::exp(result) * sum : result * (gradient - sum));
  }
}

template <class T, SoftmaxDirection direction, bool log, class Team>
MINIDNN_HD void softmax_row(const SoftmaxProblem& p, const SoftmaxArgs& a, int64_t row, Team& team) {
  auto in = detail::row_of(static_cast<const T*>(a.in), p.in, p.axis, row);
  auto out = detail::row_of(static_cast<T*>(a.out), p.out, p.axis, row);
  if constexpr (direction == SoftmaxDirection::forward) softmax_forward_row<T, log>(in, out, p.cols(), team);
  else
    softmax_backward_row<T, log>(in, detail::row_of(static_cast<const T*>(a.dy), p.dy, p.axis, row), out, p.cols(),
                                 team);
}

}  // namespace minidnn
