// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of one row of logits by a team, forward and backward, written once for CPU and CUDA. A row runs along
// the axis of classes. Rows are numbered in row-major order of the other dimensions, which are those of the target.
#pragma once
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

enum class LossDirection : int64_t { forward, backward };
enum class LossReduction : int64_t { none, sum, mean };

struct LossProblem {
  LossDirection direction{};
  LossReduction reduction{};
  int64_t axis = 0;          // of classes
  int64_t smoothed = 0;      // 1: args.smoothing is not 0
  int64_t ignore_index = 0;  // rows with this target are ignored
  // Alignment in bytes of x and dx in memory: at most 16; less than 16 only on a GPU.
  int64_t alignment = 16;
  TensorDesc x, dx;   // same dtype and shape; dx only backward
  TensorDesc target;  // x's shape without the axis; int64 or int32
  TensorDesc lse;     // shape of target; row-major, in the accumulator's dtype
  TensorDesc loss;    // the result, or backward its gradient: shaped like lse, or a scalar

  MINIDNN_HD int64_t cols() const { return x.shape[axis]; }
  MINIDNN_HD int64_t rows() const { return target.numel(); }
};

struct LossArgs {
  const void* x = nullptr;
  const void* target = nullptr;
  void* lse = nullptr;   // read backward
  void* loss = nullptr;  // read backward
  void* dx = nullptr;
  double smoothing = 0;
};

namespace detail {

MINIDNN_HD int64_t target_of(const LossProblem& p, const LossArgs& a, int64_t row) {
  const int64_t at = p.target.offset_of(row);
  return p.target.dtype == DType::int32 ? static_cast<const int32_t*>(a.target)[at]
                                        : static_cast<const int64_t*>(a.target)[at];
}

// A class that does not exist gives NaN: checking it beforehand would wait for the device. log_sum is added after the
// difference of largest and logit, because lse = largest + log_sum is rounded to a multiple of an ulp of largest.
template <class Acc> MINIDNN_HD Acc loss_of(Acc largest, Acc log_sum, Acc logit, Acc sum_of_row, int64_t cols,
                                            bool smoothed, Acc smoothing) {
  if (!smoothed) return largest - logit + log_sum;
  return largest - ((1 - smoothing) * logit + smoothing / Acc(cols) * sum_of_row) + log_sum;
}

}  // namespace detail

// Stores lse = log sum exp(x). The first member of the team calls put(the row's loss, whether the row counts).
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

// The number of rows that are not ignored.
template <class Acc, class Team> MINIDNN_HD Acc loss_count(const LossProblem& p, const LossArgs& a, Team& team) {
  Acc count = 0;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size())
    count += detail::target_of(p, a, row) == p.ignore_index ? Acc(0) : Acc(1);
  return team.sum(count);
}

// The sum or the mean of all rows' losses; the mean of no rows is NaN.
template <class Acc, class Team>
MINIDNN_HD void loss_total(const LossProblem& p, const LossArgs& a, const Acc* losses, Team& team) {
  CompensatedSum<Acc> partial;
  for (int64_t row = team.rank(); row < p.rows(); row += team.size()) partial.add(losses[row]);
  const Acc sum = team.sum(partial.value());
  const Acc count = p.reduction == LossReduction::mean ? loss_count<Acc>(p, a, team) : Acc(1);
  if (team.rank() == 0) *static_cast<Acc*>(a.loss) = sum / count;
}

// dx = g (exp(x - lse) - (1 - smoothing) [i is the target] - smoothing / C), where g is the row's share of the loss's
// gradient: `gradient[row]` without reduction, else `gradient[0]`. dx may be x.
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
