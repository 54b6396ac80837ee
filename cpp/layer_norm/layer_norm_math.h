// SPDX-License-Identifier: Apache-2.0
// The formulas of layer, RMS, group and instance norm, shared by CPU and CUDA. There is one mean and one variance per
// row. In group norm, a row is one group of channels of one sample. A team of threads (one thread on a CPU, a block on
// a GPU) normalizes a row, or computes the gradient of one parameter. The mean is x[0] + mean(x - x[0]), and the
// variance the mean of (x - mean)^2, as in batch_norm_math.h.
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"

namespace minidnn {

enum class RowNorm : int64_t { layer, rms, group };

struct LayerNormProblem {
  RowNorm kind{};
  int64_t backward = 0;
  // Only the backward function uses dy. `out` describes y in the forward function, and dx in the backward function. All
  // tensors have one dtype and one shape, and any strides.
  TensorDesc x, dy, out;
  int64_t axis = 0;  // the index of the first dimension of a row, in layer and RMS norm
  // In group norm, the number of groups of channels (dimension 1). In instance norm, the number of channels.
  int64_t groups = 0;
  int64_t alignment = 16;
};

// The pointers and options of a call of layer, RMS or group norm. Parameters and statistics are row-major. Their
// elements have the type Accumulator<T>: float64 if T is float64, else float32. RMS norm has neither bias nor mean. Its
// inv_std is the inverse of the root mean square.
struct LayerNormArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* scale = nullptr;  // if null, all scales are 1
  const void* bias = nullptr;   // if null, all biases are 0
  void* mean = nullptr;         // The forward function writes mean and inv_std, and the backward function reads both.
  void* inv_std = nullptr;
  void* dscale = nullptr;
  void* dbias = nullptr;
  double eps = 0;
};

// The statistics of a row. `rest` is the rounding error of `mean`. RMS norm has only inv_std.
struct NormStatistics {
  float mean = 0, rest = 0, inv_std = 0;
};

// The loops over the tensors of a call. NormOffsets::other is the offset in mean and inv_std.
struct LayerNormSpaces {
  // `rows` visits the first element of each row, and `members` the elements of one row.
  NormSpace rows, members;
  // `parameters` visits the elements of scale and bias, and `others` the elements of x that share one parameter.
  NormSpace parameters, others;
  int64_t centered = 1;
};

// Normalizes one row. Computes its inverse standard deviation, its mean (except in RMS norm), and then y.
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

// Computes the gradient of one row: dx = inv_std (g - sum(g) / n - x_hat sum(g x_hat) / n), where g = dy scale and n is
// the length of the row. For RMS norm, the term sum(g) / n is absent.
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

// Computes the gradients of one element of scale and bias: dscale = sum(dy x_hat) and dbias = sum(dy).
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
