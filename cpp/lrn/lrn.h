// SPDX-License-Identifier: Apache-2.0
// Local response norm (across channels) and local contrast norm (divisive, over space): the public functions and their
// problem. Maths: lrn_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "cpp/lrn/lrn_math.h"

namespace minidnn {

template <> struct Family<LrnProblem> {
  using Args = LrnArgs;
  static constexpr const char* name = "lrn";
  static std::string text(const LrnProblem&);
  static Args scratch(const LrnProblem&, Scratch&);
  static const Engines<LrnProblem>& cpu_engines();
  static const Engines<LrnProblem>& cuda_engines();
};

// y = x s^-beta,  s = k + alpha / n sum of squares over a window of `size` elements along each dimension, n in total.
struct LrnOptions {
  int64_t size;
  double alpha, beta, k;
};

// x is [N, C, spatial...] with 2 to 5 dimensions.
Tensor lrn_forward(const Tensor& x, const LrnOptions&, const Call&);
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LrnOptions&, const Call&);

// x has at least 3 dimensions. `means` is like x, with any strides; absent: zeros.
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&, const Call&);
struct LcnBackward {
  Tensor dx;
  std::optional<Tensor> dmeans;  // only if means were given
};
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&,
                         const Call&);

// For engines.
double local_norm_bytes(const LrnProblem&);
double local_norm_flop(const LrnProblem&);
size_t local_norm_workspace(const LrnProblem&);  // bytes of g, an Accumulator for every element; forward: 0
// "" if the layout is dense, with channels_in_order() or channels_innermost(). Otherwise the reason.
std::string why_not_cross_channel(const LrnProblem&);
// The same for local contrast norm over one or two spatial dimensions; its layouts are row-major and channels last.
std::string why_not_spatial_window(const LrnProblem&);

}  // namespace minidnn
