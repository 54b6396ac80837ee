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

// s = k + alpha / n sum of squares over windows of `size` along each dimension; y = x s^-beta.
struct LocalNormOptions {
  int64_t size;
  double alpha, beta, k;
};

// x [N, C, spatial...], 2 to 5 dimensions.
Tensor lrn_forward(const Tensor& x, const LocalNormOptions&, const Call&);
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LocalNormOptions&, const Call&);

// Of 3 dimensions at least. means: like x, any strides; none: zeros.
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LocalNormOptions&, const Call&);
struct LcnBackward {
  Tensor dx;
  std::optional<Tensor> dmeans;  // of means that are given
};
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LocalNormOptions&,
                         const Call&);

// For engines.
double local_norm_bytes(const LocalNormProblem&);
double local_norm_flop(const LocalNormProblem&);
size_t local_norm_workspace(const LocalNormProblem&);  // of what needs g of every element, as an Accumulator
// local_norm_cpu.cpp: why a tensor's channels do not lie as the engines named `across` read them, if they do not:
// channels_in_order(), or innermost.
std::string why_not_across(const LocalNormProblem&);
const Engine<LocalNormProblem>& local_norm_across();
// The same of local contrast norm over one or two spatial dimensions: row-major, or channels last.
std::string why_not_around(const LocalNormProblem&);
const Engine<LocalNormProblem>& local_norm_around();

}  // namespace minidnn
