// SPDX-License-Identifier: Apache-2.0
// Local response norm (across channels) and local contrast norm (divisive, over space): the public functions and their
// problem. Maths: local_norm_math.h.
#pragma once
#include "cpp/norm/local_norm_math.h"
#include "cpp/norm/norm.h"

namespace minidnn {

template <> struct Family<LocalNormProblem> {
  using Args = LocalNormArgs;
  static constexpr const char* name = "norm";
  static std::string text(const LocalNormProblem&);
  static Args scratch(const LocalNormProblem&, Scratch&);
  static const Engines<LocalNormProblem>& cpu_engines();
  static const Engines<LocalNormProblem>& cuda_engines();
};

// y = x s^-beta,  s = k + alpha / n sum of squares over a window of `size` elements along each dimension, n in total.
struct LocalNormOptions {
  int64_t size;
  double alpha, beta, k;
};

// x is [N, C, spatial...] with 2 to 5 dimensions.
Tensor lrn_forward(const Tensor& x, const LocalNormOptions&, const Call&);
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LocalNormOptions&, const Call&);

// x has at least 3 dimensions. `means` is like x, with any strides; absent: zeros.
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LocalNormOptions&, const Call&);
struct LcnBackward {
  Tensor dx;
  std::optional<Tensor> dmeans;  // only if means were given
};
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LocalNormOptions&,
                         const Call&);

// For engines.
double local_norm_bytes(const LocalNormProblem&);
double local_norm_flop(const LocalNormProblem&);
size_t local_norm_workspace(const LocalNormProblem&);  // bytes of g, an Accumulator for every element; forward: 0
// local_norm_cpu.cpp. Empty if the layout is one that the engines named `across` read: dense, with channels_in_order()
// or channels_innermost(). Otherwise the reason.
std::string why_not_across(const LocalNormProblem&);
const Engine<LocalNormProblem>& local_norm_across();
// The same for local contrast norm over one or two spatial dimensions; its layouts are row-major and channels last.
std::string why_not_around(const LocalNormProblem&);
const Engine<LocalNormProblem>& local_norm_around();

}  // namespace minidnn
