// SPDX-License-Identifier: Apache-2.0
// The reductions of the vectorised CPU engines: the sum or mean of losses, and the gradient that rows share.
#pragma once
#include <atomic>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/core/layout.h"
#include "cpp/loss/loss_math.h"

namespace minidnn::cpu::loss {

template <class Target> int64_t counted(const void* targets, int64_t ignored, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t row = begin; row < end; ++row) count += static_cast<const Target*>(targets)[row] != ignored;
  return count;
}
// Returns the number of rows whose target is not ignore_index.
inline int64_t count_rows(const LossProblem& p, const LossArgs& a) {
  constexpr int64_t kGrain = 65536;  // the least number of targets that one thread reads
  const bool row_major = is_row_major(p.target);
  std::atomic<int64_t> count = 0;
  cpu::parallel_for(p.rows(), cpu::work_size(kGrain), [&](int64_t begin, int64_t end) {
    if (row_major)
      count += p.target.dtype == DType::int32 ? counted<int32_t>(a.target, p.ignore_index, begin, end)
                                              : counted<int64_t>(a.target, p.ignore_index, begin, end);
    else
      for (int64_t row = begin; row < end; ++row) count += minidnn::detail::target_of(p, a, row) != p.ignore_index;
  });
  return count;
}

template <class A> void add_losses(const LossProblem& p, const LossArgs& a, const A* losses, int64_t n) {
  CompensatedSum<A> sum;
  for (int64_t i = 0; i < n; ++i) sum.add(losses[i]);
  *static_cast<A*>(a.loss) = sum.value() / (p.reduction == LossReduction::mean ? A(count_rows(p, a)) : A(1));
}
// Writes the sum or the mean of the losses. `losses` has n sums of losses, in the dtype of the result.
inline void write_total(const LossProblem& p, const LossArgs& a, const void* losses, int64_t n) {
  if (p.loss.dtype == DType::float64) add_losses(p, a, static_cast<const double*>(losses), n);
  else add_losses(p, a, static_cast<const float*>(losses), n);
}

// The gradient of each row, divided by the number of rows
union RowGradient {
  float single;
  double wide;
};
// Returns the address of the gradient of the rows' losses: one number per row, or one in all if losses are reduced. For
// the mean, this number is computed in `scaled`.
inline const void* row_gradient(const LossProblem& p, const LossArgs& a, RowGradient& scaled) {
  if (p.reduction != LossReduction::mean) return a.loss;
  const int64_t count = count_rows(p, a);
  if (p.loss.dtype == DType::float64) scaled.wide = *static_cast<const double*>(a.loss) / double(count);
  else scaled.single = *static_cast<const float*>(a.loss) / float(count);
  return &scaled;
}

}  // namespace minidnn::cpu::loss
