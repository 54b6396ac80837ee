// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of one row of logits and its gradient, for a team: one thread on a CPU, several threads on a GPU. A row
// runs along the axis of classes. Rows are numbered in row-major order of the other dimensions, which are those of the
// target.
#pragma once
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

enum class LossDirection : int64_t { forward, backward };
enum class LossReduction : int64_t { none, sum, mean };

struct LossProblem {
  LossDirection direction{};
  LossReduction reduction{};
  int64_t axis = 0;          // the axis of classes
  int64_t smoothed = 0;      // 1 if args.smoothing is not 0, else 0
  int64_t ignore_index = 0;  // rows with this target have no loss and no gradient
  // The bytes to which x and dx are aligned in memory, at most 16. It is always 16 on a CPU.
  int64_t alignment = 16;
  TensorDesc x, dx;   // dx has the dtype and shape of x; only the gradient uses it
  TensorDesc target;  // has the shape of x without `axis`; its dtype is int64 or int32
  // The logarithm of sum(exp(x)) per row. It has the shape of target and is row-major. It is float64 if x is float64,
  // else float32.
  TensorDesc lse;
  // The loss, or the gradient of the loss for the backward function. It has the shape of lse without reduction, else it
  // is a scalar.
  TensorDesc loss;

  MINIDNN_HD int64_t cols() const { return x.shape[axis]; }
  MINIDNN_HD int64_t rows() const { return target.numel(); }
};

struct LossArgs {
  const void* x = nullptr;
  const void* target = nullptr;
  void* lse = nullptr;   // written by the forward function, read by the gradient
  void* loss = nullptr;  // written by the forward function; for the gradient, dy
  void* dx = nullptr;
  double smoothing = 0;
};

namespace detail {

MINIDNN_HD int64_t target_of(const LossProblem& p, const LossArgs& a, int64_t row) {
  const int64_t at = p.target.offset_of(row);
  return p.target.dtype == DType::int32 ? static_cast<const int32_t*>(a.target)[at]
                                        : static_cast<const int64_t*>(a.target)[at];
}

// The loss of a row. A target that is no class gives NaN; an error would require a check that waits for the device. lse
// = largest + log_sum is not used here, because it is rounded to an ulp of `largest`. So `largest - logit` is computed
// first, and log_sum is added to it.
template <class Acc> MINIDNN_HD Acc loss_of(Acc largest, Acc log_sum, Acc logit, Acc sum_of_row, int64_t cols,
                                            bool smoothed, Acc smoothing) {
  if (!smoothed) return largest - logit + log_sum;
  return largest - ((1 - smoothing) * logit + smoothing / Acc(cols) * sum_of_row) + log_sum;
}

}  // namespace detail

// Stores lse = log(sum(exp(x))) of a row. The first member of the team calls put(loss of the row, whether the row
// counts); a row whose target is ignore_index does not count.
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

// The number of rows whose target is not ignore_index.
template <class Acc, class Team> MINIDNN_HD Acc loss_count(const LossProblem& p, const LossArgs& a, Team& team) {
  Acc count = 0;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size())
    count += detail::target_of(p, a, row) == p.ignore_index ? Acc(0) : Acc(1);
  return team.sum(count);
}

// Writes the sum or the mean of the losses of all rows. The mean is NaN if all rows are ignored.
template <class Acc, class Team>
MINIDNN_HD void loss_total(const LossProblem& p, const LossArgs& a, const Acc* losses, Team& team) {
  CompensatedSum<Acc> partial;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size()) partial.add(losses[row]);
  const Acc sum = team.sum(partial.value());
  const Acc count = p.reduction == LossReduction::mean ? loss_count<Acc>(p, a, team) : Acc(1);
  if (team.rank() == 0) *static_cast<Acc*>(a.loss) = sum / count;
}

// dx = g (exp(x - lse) - (1 - smoothing) [i is the target] - smoothing / C). C is the number of classes. Without
// reduction, g is gradient[row]; else g is gradient[0]. dx may be the same tensor as x.
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
