// SPDX-License-Identifier: Apache-2.0
// The arithmetic of layer, RMS, group and instance norm, shared by CPU and CUDA. There is one statistic per row, and
// parameters vary along the row. A team per row computes its sums and maps it; a team per parameter sums the gradient
// of that parameter. As in batch_norm_math.h, whose loops this file uses, deviations are taken from the mean, and the
// mean is computed as a sum of x - x[first].
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"

namespace minidnn {

enum class RowNorm : int64_t { layer, rms, group };

struct LayerNormProblem {
  RowNorm kind{};
  int64_t backward = 0;
  TensorDesc x, dy, out;  // dy: only backward; out: y or dx. All have one dtype and one shape, and any strides
  int64_t axis = 0;       // layer, rms: the first dimension of a row
  int64_t groups = 0;  // group: number of groups of channels (dimension 1); for instance norm, the number of channels
  int64_t alignment = 16;
};

// Parameters and statistics are Accumulator<T>, row-major. RMS norm has neither bias nor mean; there, inv_std is the
// inverse of the root mean square.
struct LayerNormArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* scale = nullptr;  // null: ones
  const void* bias = nullptr;   // null: zeros
  void* mean = nullptr;         // forward writes mean and inv_std, backward reads them
  void* inv_std = nullptr;
  void* dscale = nullptr;
  void* dbias = nullptr;
  double eps = 0;
};

// The loops of a problem (row_norm_spaces()). NormOffsets::other is the offset into the statistics here.
struct LayerNormSpaces {
  NormSpace rows, members;       // one statistic per item of `rows`
  NormSpace parameters, others;  // one parameter per item of `parameters`, whose gradient is summed over `others`
  int64_t centered = 1;
};

// Computes the mean (except for RMS norm) and the inverse standard deviation, then y of one row.
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

// dx = inv_std (g - sum(g) / n - x_hat sum(g x_hat) / n),  g = dy scale. RMS norm has no term sum(g) / n.
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

// dscale = sum(dy x_hat) and dbias = sum(dy) of one parameter.
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
