// SPDX-License-Identifier: Apache-2.0
// The formulas of layer, RMS, group and instance norm, shared by CPU and CUDA. There is one statistic per row; in group
// norm, a row is a group of a sample. Parameters vary along the row. A team (one thread, or a block on a GPU) sums and
// normalizes a row. A team sums the gradient of one parameter. As in batch_norm_math.h, the variance is the mean of (x
// - mean)^2, and the mean is computed from sums of x - x[first].
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"

namespace minidnn {

enum class RowNorm : int64_t { layer, rms, group };

struct LayerNormProblem {
  RowNorm kind{};
  int64_t backward = 0;
  // dy is used only by the gradient. `out` is y, or dx in the gradient. All tensors have one dtype and one shape, and
  // any strides.
  TensorDesc x, dy, out;
  int64_t axis = 0;  // in layer and RMS norm: the first dimension of a row
  // In group norm: number of groups of channels (dimension 1); in instance norm: number of channels.
  int64_t groups = 0;
  int64_t alignment = 16;
};

// The pointers of a call. Parameters and statistics are row-major, with elements of type Accumulator<T> (float64 if T
// is float64, else float32). RMS norm has neither bias nor mean; its inv_std is the inverse of the root mean square.
struct LayerNormArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* scale = nullptr;  // null means that all scales are 1
  const void* bias = nullptr;   // null means that all biases are 0
  void* mean = nullptr;         // the forward function writes mean and inv_std; the gradient reads them
  void* inv_std = nullptr;
  void* dscale = nullptr;
  void* dbias = nullptr;
  double eps = 0;
};

// The loops of a call, from row_norm_spaces(). In these loops, NormOffsets::other is the offset into the statistics.
struct LayerNormSpaces {
  NormSpace rows, members;  // `rows` visits the statistics; `members` visits the elements of one row
  // `parameters` visits the elements of scale and bias. `others` visits the elements of x that share a parameter, over
  // which its gradient is summed.
  NormSpace parameters, others;
  int64_t centered = 1;
};

// Computes the mean (except in RMS norm) and the inverse standard deviation of one row, and then y.
template <class T, class Team>
MINIDNN_HD void norm_row_forward(const LayerNormSpaces& s, const LayerNormArgs& a, Team team, int64_t row) {
  using Acc = Accumulator<T>;
  const NormOffsets at = s.rows.offsets_of(row);
  const T* x = static_cast<const T*>(a.x) + at.x;
  const Acc n = Acc(s.members.size);
  Acc mean = 0, rest = 0, sum[1];
  if (s.centered) {
    const Acc first = Acc(x[0]);
    norm::sum_members(team, s.members, sum, [&](const NormOffsets& m) { return Acc(x[m.x]) - first; });
    const Acc from_first = sum[0] / n;
    mean = first + from_first;
    rest = from_first - (mean - first);
  }
  norm::sum_members(team, s.members, sum, [&](const NormOffsets& m) {
    const Acc deviation = (Acc(x[m.x]) - mean) - rest;
    return deviation * deviation;
  });
  const Acc inv_std = norm::inverse_std(sum[0] / n, a.eps);
  if (team.rank() == 0) {
    if (s.centered) norm::parameter<Acc>(a.mean, at.other) = mean;
    norm::parameter<Acc>(a.inv_std, at.other) = inv_std;
  }
  T* out = static_cast<T*>(a.out) + at.out;
  for (int64_t i = team.rank(); i < s.members.size; i += team.size()) {
    const NormOffsets m = s.members.offsets_of(i);
    const int64_t p = at.parameter + m.parameter;
    const Acc scale = a.scale ? norm::parameter<Acc>(a.scale, p) : Acc(1);
    const Acc bias = a.bias ? norm::parameter<Acc>(a.bias, p) : Acc(0);
    out[m.out] = T((Acc(x[m.x]) - mean) * inv_std * scale + bias);
  }
}

// The gradient of one row: dx = inv_std (g - sum(g) / n - x_hat sum(g x_hat) / n), where g = dy scale and n is the
// length of the row. RMS norm has no term sum(g) / n.
template <class T, class Team>
MINIDNN_HD void norm_row_backward(const LayerNormSpaces& s, const LayerNormArgs& a, Team team, int64_t row) {
  using Acc = Accumulator<T>;
  const NormOffsets at = s.rows.offsets_of(row);
  const T *x = static_cast<const T*>(a.x) + at.x, *dy = static_cast<const T*>(a.dy) + at.dy;
  const Acc n = Acc(s.members.size), inv_std = norm::parameter<Acc>(a.inv_std, at.other);
  const Acc mean = s.centered ? norm::parameter<Acc>(a.mean, at.other) : Acc(0);
  auto g = [&](const NormOffsets& m) {
    return Acc(dy[m.dy]) * (a.scale ? norm::parameter<Acc>(a.scale, at.parameter + m.parameter) : Acc(1));
  };
  Acc sums[2];
  norm::sum_members(team, s.members, sums, g,
                    [&](const NormOffsets& m) { return g(m) * ((Acc(x[m.x]) - mean) * inv_std); });
  const Acc first = s.centered ? sums[0] / n : Acc(0), second = sums[1] / n;
  T* out = static_cast<T*>(a.out) + at.out;
  for (int64_t i = team.rank(); i < s.members.size; i += team.size()) {
    const NormOffsets m = s.members.offsets_of(i);
    out[m.out] = T(inv_std * (g(m) - first - (Acc(x[m.x]) - mean) * inv_std * second));
  }
}

// The gradients of one element of scale and bias: dscale = sum(dy x_hat) and dbias = sum(dy).
template <class T, class Team>
MINIDNN_HD void norm_parameter_sums(const LayerNormSpaces& s, const LayerNormArgs& a, Team team, int64_t parameter) {
  using Acc = Accumulator<T>;
  const NormOffsets at = s.parameters.offsets_of(parameter);
  const T *x = static_cast<const T*>(a.x) + at.x, *dy = static_cast<const T*>(a.dy) + at.dy;
  Acc sums[2];
  norm::sum_members(
      team, s.others, sums, [&](const NormOffsets& m) { return Acc(dy[m.dy]); },
      [&](const NormOffsets& m) {
        const int64_t row = at.other + m.other;
        const Acc mean = s.centered ? norm::parameter<Acc>(a.mean, row) : Acc(0);
        return Acc(dy[m.dy]) * ((Acc(x[m.x]) - mean) * norm::parameter<Acc>(a.inv_std, row));
      });
  if (team.rank() != 0) return;
  norm::parameter<Acc>(a.dscale, at.parameter) = sums[1];
  if (a.dbias) norm::parameter<Acc>(a.dbias, at.parameter) = sums[0];
}

}  // namespace minidnn
