// SPDX-License-Identifier: Apache-2.0
// The cross-entropy of one row of logits, and its gradient. A team of threads (one thread on a CPU) computes a row,
// which runs along the axis of classes. Rows are numbered in row-major order of the target.
#pragma once
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

enum class LossDirection : int64_t { forward, backward };
enum class LossReduction : int64_t { none, sum, mean };

struct LossProblem {
  LossDirection direction{};
  LossReduction reduction{};
  int64_t axis = 0;          // the dimension of x that counts classes
  int64_t smoothed = 0;      // 1 if label smoothing is not 0, else 0
  int64_t ignore_index = 0;  // a row with this target has no loss and no gradient
  // The bytes to which the addresses of x and dx are aligned, at most 16. It is always 16 on a CPU.
  int64_t alignment = 16;
  TensorDesc x, dx;   // dx has the dtype and shape of x; only the backward function uses dx
  TensorDesc target;  // target has the shape of x without `axis`; its dtype is int64 or int32
  // The logarithm of sum(exp(x)) of each row. It has the shape of target and is row-major. It is float64 if x is
  // float64, else float32.
  TensorDesc lse;
  // The loss (forward), or its gradient (backward). It has the shape of target, or is a scalar if losses are reduced.
  TensorDesc loss;

  MINIDNN_HD int64_t cols() const { return x.shape[axis]; }
  MINIDNN_HD int64_t rows() const { return target.numel(); }
};

struct LossArgs {
  const void* x = nullptr;
  const void* target = nullptr;
  // log(sum(exp(x))) of each row, which the forward function writes and the backward function reads
  void* lse = nullptr;
  void* loss = nullptr;  // the loss, which the forward function writes, or dy, which the backward function reads
  void* dx = nullptr;
  double smoothing = 0;
};

namespace detail {

MINIDNN_HD int64_t target_of(const LossProblem& p, const LossArgs& a, int64_t row) {
  const int64_t at = p.target.offset_of(row);
  return p.target.dtype == DType::int32 ? static_cast<const int32_t*>(a.target)[at]
                                        : static_cast<const int64_t*>(a.target)[at];
}

// Computes the loss of a row. It is NaN if the target is not a class: to report an error, the host would have to wait
// for the device. log_sum is added to `largest - logit`, because `largest + log_sum` would be rounded to an ulp of
// `largest`.
template <class Acc> MINIDNN_HD Acc loss_of(Acc largest, Acc log_sum, Acc logit, Acc sum_of_row, int64_t cols,
                                            bool smoothed, Acc smoothing) {
  if (!smoothed) return largest - logit + log_sum;
  return largest - ((1 - smoothing) * logit + smoothing / Acc(cols) * sum_of_row) + log_sum;
}

}  // namespace detail

// Stores lse = log(sum(exp(x))) of a row. One thread of the team calls put(loss, counts), where `counts` is false if
// the target is ignore_index.
template <class T, class Team, class Put>
MINIDNN_HD void loss_forward_row(const LossProblem& p, const LossArgs& a, int64_t row, Team& team, Put&& put) {
  using Acc = Accumulator<T>;
  const auto x = detail::row_of(static_cast<const T*>(a.x), p.x, p.axis, row);
  const int64_t cols = p.cols(), target = detail::target_of(p, a, row);
  Acc largest = -INFINITY;
  for (int64_t i = team.rank(); i < cols; i += team.size()) largest = max_or_nan(largest, Acc(x[i]));
  largest = team.max(largest);
  CompensatedSum<Acc> exponentials, logits;
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    exponentials.add(maths::exp(Acc(x[i]) - largest));
    if (p.smoothed) logits.add(Acc(x[i]));
  }
  const Acc log_sum = maths::log(team.sum(exponentials.value()));
  const Acc all = p.smoothed ? team.sum(logits.value()) : Acc(0);
  if (team.rank() != 0) return;
  static_cast<Acc*>(a.lse)[row] = largest + log_sum;
  const bool known = 0 <= target && target < cols;
  if (target == p.ignore_index) return put(Acc(0), false);
  const Acc logit = known ? Acc(x[target]) : Acc(INFINITY) - Acc(INFINITY);
  put(detail::loss_of<Acc>(largest, log_sum, logit, all, cols, p.smoothed, Acc(a.smoothing)), true);
}

// Returns the number of rows whose target is not ignore_index.
template <class Acc, class Team> MINIDNN_HD Acc loss_count(const LossProblem& p, const LossArgs& a, Team& team) {
  Acc count = 0;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size())
    count += detail::target_of(p, a, row) == p.ignore_index ? Acc(0) : Acc(1);
  return team.sum(count);
}

// Writes the sum or the mean of the losses of all rows. If the target of every row is ignore_index, the mean is NaN.
template <class Acc, class Team>
MINIDNN_HD void loss_total(const LossProblem& p, const LossArgs& a, const Acc* losses, Team& team) {
  CompensatedSum<Acc> partial;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size()) partial.add(losses[row]);
  const Acc sum = team.sum(partial.value());
  const Acc count = p.reduction == LossReduction::mean ? loss_count<Acc>(p, a, team) : Acc(1);
  if (team.rank() == 0) *static_cast<Acc*>(a.loss) = sum / count;
}

// Computes dx = g (exp(x - lse) - (1 - smoothing) [i is the target] - smoothing / C) for each class i of C. g is
// gradient[row], or gradient[0] if losses are reduced. dx may be x.
template <class T, class Team>
MINIDNN_HD void loss_backward_row(const LossProblem& p, const LossArgs& a, int64_t row, const Accumulator<T>* gradient,
                                  Team& team) {
  using Acc = Accumulator<T>;
  const auto x = detail::row_of(static_cast<const T*>(a.x), p.x, p.axis, row);
  const auto dx = detail::row_of(static_cast<T*>(a.dx), p.dx, p.axis, row);
  const int64_t cols = p.cols(), target = detail::target_of(p, a, row);
  const bool ignored = target == p.ignore_index;
  const Acc smoothing = Acc(a.smoothing), lse = static_cast<const Acc*>(a.lse)[row], each = smoothing / Acc(cols);
  Acc g = p.reduction == LossReduction::none ? gradient[row] : gradient[0];
  if (target < 0 || target >= cols) g = Acc(INFINITY) - Acc(INFINITY);
  for (int64_t i = team.rank(); i < cols; i += team.size()) {
    const Acc less = i == target ? 1 - smoothing + each : each;
    dx[i] = T(ignored ? Acc(0) : g * (maths::exp(Acc(x[i]) - lse) - less));
  }
}

}  // namespace minidnn
