// SPDX-License-Identifier: Apache-2.0
// The formulas of normalization, shared by CPU and CUDA. First, a team of threads (one thread on a CPU, a block on a
// GPU) computes the statistics of each channel, or the gradients of its parameters. Then each element of y or dx is
// computed on its own. The mean is computed as x[0] + mean(x - x[0]), and the variance as the mean of (x - mean)^2.
// Both are accurate even if |mean| is much larger than the standard deviation.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"
#include "cpp/core/host_device/team.h"

namespace minidnn {

enum class NormDirection : int64_t { training, inference, backward };

// A call of batch norm. Statistics and parameters have the dimensions [kept_begin, kept_end) of x. Each statistic is
// taken over the remaining dimensions of x. Without per_activation, parameters have dimension 1 of x, the channels.
// With per_activation, they have all dimensions except dimension 0.
struct BatchNormProblem {
  NormDirection direction{};
  // Only the backward function uses dy. `out` describes y in forward functions, and dx in the backward function. All
  // tensors have one dtype and one shape, and any strides.
  TensorDesc x, dy, out;
  int64_t kept_begin = 0, kept_end = 0;
  int64_t running = 0;  // 1 if training also updates running_mean and running_var, else 0
  // Fused options. Forward functions compute y = max(0, batch norm + residual), where the max (relu) and the residual
  // are optional. With relu, the backward function replaces dy by 0 where y <= 0. It may also write dy, after this
  // replacement, to `dresidual`.
  int64_t relu = 0;
  // `other` is the residual in forward functions, and y in the backward function. `dresidual` is the gradient of the
  // residual. Both tensors have the shape and dtype of x. Rank 0 means that a tensor is absent.
  TensorDesc other, dresidual;
  // The bytes to which the addresses of all tensors of the call are aligned; see alignment_of().
  int64_t alignment = 16;
};

// The pointers and options of a call of batch norm. Parameters and statistics are row-major. Their elements have the
// type Accumulator<T>: float64 if T is float64, else float32. Pointers that a call does not need are null.
struct BatchNormArgs {
  const void* x = nullptr;
  const void* dy = nullptr;
  void* out = nullptr;
  const void* scale = nullptr;
  const void* bias = nullptr;
  // Training writes mean and inv_std, backward reads both, and inference reads only mean.
  void* mean = nullptr;
  void* inv_std = nullptr;
  const void* var = nullptr;     // the variance, which only inference reads
  void* running_mean = nullptr;  // the running statistics; null if training does not update them
  void* running_var = nullptr;
  void* dscale = nullptr;
  void* dbias = nullptr;
  const void* other = nullptr;
  void* dresidual = nullptr;
  double eps = 0, momentum = 0;
  int64_t relu = 0;  // 1 if a ReLU is fused, as in BatchNormProblem, else 0
};

// The offset of an element, or the stride of a loop, in each tensor of a call. Both are in elements.
struct NormOffsets {
  int64_t x = 0, dy = 0, out = 0, parameter = 0, other = 0, dresidual = 0;
  MINIDNN_HD NormOffsets plus(int64_t times, const NormOffsets& step) const {
    return {x + times * step.x,         dy + times * step.dy,
            out + times * step.out,     parameter + times * step.parameter,
            other + times * step.other, dresidual + times * step.dresidual};
  }
};

// Nested loops over some dimensions of the tensors of a call, outermost first, sorted by the strides of x. Loops are
// merged where possible. For example, the loops over dense tensors are (N, C, HW) for NCHW, and (NHW, C) for NHWC.
struct NormSpace {
  int64_t size = 1;  // number of elements that all loops together visit
  int64_t rank = 1;  // the number of nested loops, at least 1
  int64_t shape[kMaxRank]{};
  NormOffsets step[kMaxRank]{};

  MINIDNN_HD int64_t span() const { return shape[rank - 1]; }
  MINIDNN_HD NormOffsets span_step() const { return step[rank - 1]; }

  MINIDNN_HD NormOffsets offsets_of(int64_t linear) const {
    NormOffsets at;
#ifdef __CUDACC__
// Not unrolled, because a 64-bit division takes many instructions on a GPU.
#pragma unroll 1
#endif
    for (int i = int(rank) - 1; i > 0; --i) {
      at = at.plus(linear % shape[i], step[i]);
      linear /= shape[i];
    }
    return at.plus(linear, step[0]);
  }
};

// The loops of a call. `groups` visits the first element of each group, the elements that share one mean. `members`
// visits all elements of one group, with offsets from its first element.
struct NormSpaces {
  NormSpace groups, members, all;
};

// A single thread that sums elements that are contiguous in every tensor, so that compilers vectorise the loop.
struct PackedSingleThread : SingleThread {};

namespace norm {

template <class Team>
constexpr bool kIsPacked = false;
template <>
inline constexpr bool kIsPacked<PackedSingleThread> = true;
template <class Team>
constexpr bool kIsAlone = kIsPacked<Team>;
template <>
inline constexpr bool kIsAlone<SingleThread> = true;

// The number of partial sums per thread and result. With several partial sums, an addition need not wait for the
// previous addition, and compilers use SIMD.
constexpr int kLanes = 8;
// The largest number of terms of a partial sum, which is then added to a compensated total.
constexpr int64_t kChunk = 1024;

template <class Acc, class F>
MINIDNN_HD void add_chunk(CompensatedSum<Acc> (&total)[kLanes], const NormOffsets& at, const NormOffsets& step,
                          int64_t n, const F& f) {
  Acc lanes[kLanes]{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lanes[k] += f(at.plus(i + k, step));
  for (; i < n; ++i) lanes[0] += f(at.plus(i, step));
  for (int k = 0; k < kLanes; ++k) total[k].add(lanes[k]);
}
// Computes several sums over the same elements in one thread. All functions process kChunk elements before the next
// kChunk elements, so that all but the first function read from the cache.
template <class Acc, class... F>
MINIDNN_HD void add_spans(const NormSpace& s, const NormOffsets& step, Acc (&sums)[sizeof...(F)], const F&... f) {
  CompensatedSum<Acc> total[sizeof...(F)][kLanes];
  for (int64_t begin = 0; begin < s.size; begin += s.span()) {
    NormOffsets at = s.offsets_of(begin);
    for (int64_t i = 0; i < s.span(); i += kChunk) {
      int c = 0;
      (add_chunk(total[c++], at.plus(i, step), step, min_of(kChunk, s.span() - i), f), ...);
    }
  }
  for (int c = 0; c < int(sizeof...(F)); ++c)
    for (int k = 0; k < kLanes; ++k) sums[c] += total[c][k].value();
}

// Sums each function f(offsets) over the elements that the loops `s` visit. Every thread of the team gets all sums.
template <class Acc, class Team, class... F>
MINIDNN_HD void sum_members(Team& team, const NormSpace& s, Acc (&sums)[sizeof...(F)], const F&... f) {
  for (Acc& sum : sums) sum = Acc(0);
  if constexpr (kIsAlone<Team>) {
    add_spans(s, kIsPacked<Team> ? NormOffsets{.x = 1, .dy = 1, .other = 1} : s.span_step(), sums, f...);
  } else {
    for (int64_t i = team.rank(); i < s.size; i += team.size()) {
      NormOffsets at = s.offsets_of(i);
      int c = 0;
      ((sums[c++] += f(at)), ...);
    }
    for (Acc& sum : sums) sum = team.sum(sum);
  }
}

template <class Acc>
MINIDNN_HD Acc& parameter(void* base, int64_t at) {
  return static_cast<Acc*>(base)[at];
}
template <class Acc>
MINIDNN_HD Acc parameter(const void* base, int64_t at) {
  return static_cast<const Acc*>(base)[at];
}
template <class Acc>
MINIDNN_HD Acc inverse_std(Acc var, double eps) {
  return Acc(1) / maths::sqrt(var + Acc(eps));
}

}  // namespace norm

// Computes the statistics of one group of elements, such as a channel: the mean, 1 / sqrt(var + eps), and the running
// statistics. For an empty batch, the mean is NaN, and the running statistics do not change.
template <class T, class Team>
MINIDNN_HD void norm_training_sums(const NormSpaces& s, const BatchNormArgs& a, Team team, int64_t group) {
  using Acc = Accumulator<T>;
  NormOffsets at = s.groups.offsets_of(group);
  const T* x = static_cast<const T*>(a.x) + at.x;
  int64_t members = s.members.size;
  Acc n = Acc(members), first = members ? Acc(x[0]) : Acc(0);
  Acc sum[1];
  norm::sum_members(team, s.members, sum, [&](const NormOffsets& m) { return Acc(x[m.x]) - first; });
  Acc from_first = sum[0] / n;
  // `rest` is the rounding error of `mean`, so the variance is taken around the exact mean.
  Acc mean = first + from_first, rest = from_first - (mean - first);
  norm::sum_members(team, s.members, sum, [&](const NormOffsets& m) {
    Acc deviation = (Acc(x[m.x]) - mean) - rest;
    return deviation * deviation;
  });
  Acc squares = sum[0];
  if (team.rank() != 0) return;
  norm::parameter<Acc>(a.mean, at.parameter) = mean;
  norm::parameter<Acc>(a.inv_std, at.parameter) = norm::inverse_std(squares / n, a.eps);
  if (!a.running_mean || members == 0) return;
  Acc momentum = Acc(a.momentum), keep = Acc(1 - a.momentum);
  Acc& running_mean = norm::parameter<Acc>(a.running_mean, at.parameter);
  Acc& running_var = norm::parameter<Acc>(a.running_var, at.parameter);
  running_mean = keep * running_mean + momentum * mean;
  running_var = keep * running_var + momentum * (squares / max_of(n - Acc(1), Acc(1)));
}

// Returns the gradient of the normalized value. It is dy, or zero where the fused relu made y zero.
template <class T>
MINIDNN_HD Accumulator<T> norm_dy(const BatchNormArgs& a, const NormOffsets& at) {
  using Acc = Accumulator<T>;
  const Acc dy = Acc(static_cast<const T*>(a.dy)[at.dy]);
  if (!a.other) return dy;
  return Acc(static_cast<const T*>(a.other)[at.other]) <= Acc(0) ? Acc(0) : dy;
}

// Computes the gradients of the parameters of one group of elements, such as a channel: dbias = sum(dy) and dscale =
// sum(dy * x_hat), where x_hat is (x - mean) * inv_std.
template <class T, class Team>
MINIDNN_HD void norm_backward_sums(const NormSpaces& s, const BatchNormArgs& a, Team team, int64_t group) {
  using Acc = Accumulator<T>;
  NormOffsets at = s.groups.offsets_of(group);
  const T* x = static_cast<const T*>(a.x) + at.x;
  BatchNormArgs here = a;
  here.dy = static_cast<const T*>(a.dy) + at.dy;
  if (a.other) here.other = static_cast<const T*>(a.other) + at.other;
  Acc mean = norm::parameter<Acc>(a.mean, at.parameter);
  Acc sums[2];
  norm::sum_members(
      team, s.members, sums, [&](const NormOffsets& m) { return norm_dy<T>(here, m); },
      [&](const NormOffsets& m) { return norm_dy<T>(here, m) * (Acc(x[m.x]) - mean); });
  if (team.rank() != 0) return;
  norm::parameter<Acc>(a.dbias, at.parameter) = sums[0];
  norm::parameter<Acc>(a.dscale, at.parameter) = sums[1] * norm::parameter<Acc>(a.inv_std, at.parameter);
}

template <class T, NormDirection direction, class Team>
MINIDNN_HD void norm_sums(const NormSpaces& s, const BatchNormArgs& a, Team team, int64_t group) {
  if constexpr (direction == NormDirection::backward) norm_backward_sums<T>(s, a, team, group);
  else norm_training_sums<T>(s, a, team, group);
}

// What norm_element() needs of one channel. Except in inference, norm_sums() must be called first.
template <class Acc>
struct NormCoefficients {
  Acc mean, factor, offset, slope;
};

template <class T, NormDirection direction>
MINIDNN_HD NormCoefficients<Accumulator<T>> norm_coefficients(const NormSpaces& s, const BatchNormArgs& a, int64_t at) {
  using Acc = Accumulator<T>;
  using norm::parameter, norm::inverse_std;
  Acc mean = parameter<Acc>(a.mean, at), scale = parameter<Acc>(a.scale, at), inv_std;
  if constexpr (direction == NormDirection::inference) inv_std = inverse_std(parameter<Acc>(a.var, at), a.eps);
  else inv_std = parameter<Acc>(a.inv_std, at);
  if constexpr (direction == NormDirection::backward) {
    Acc n = Acc(s.members.size);
    return {mean, scale * inv_std, parameter<Acc>(a.dbias, at) / n, parameter<Acc>(a.dscale, at) / n * inv_std};
  } else return {mean, scale * inv_std, parameter<Acc>(a.bias, at), Acc(0)};
}

// Computes one element of y or dx, with x_hat = (x - mean) * inv_std.
// Forward: y = scale * x_hat + bias, then the fused residual and relu are applied.
// Backward: dx = scale * inv_std * (dy - dbias / n - x_hat * dscale / n), where n is the number of elements of the
// channel, and dbias and dscale are the gradients of bias and scale.
// All inputs of an element are read before its result is written, so the result may overwrite an input.
template <class T, NormDirection direction>
MINIDNN_HD void norm_element(const BatchNormArgs& a, const NormOffsets& at, const NormCoefficients<Accumulator<T>>& c) {
  using Acc = Accumulator<T>;
  Acc deviation = Acc(static_cast<const T*>(a.x)[at.x]) - c.mean, result;
  if constexpr (direction == NormDirection::backward) {
    const Acc dy = norm_dy<T>(a, at);
    if (a.dresidual) static_cast<T*>(a.dresidual)[at.dresidual] = T(dy);
    result = c.factor * (dy - c.offset - deviation * c.slope);
  } else {
    result = deviation * c.factor + c.offset;
    if (a.other) result += Acc(static_cast<const T*>(a.other)[at.other]);
    // If the result is NaN, the comparison with 0 is false, and relu keeps the NaN.
    if (a.relu) result = result < Acc(0) ? Acc(0) : result;
  }
  static_cast<T*>(a.out)[at.out] = T(result);
}

}  // namespace minidnn
