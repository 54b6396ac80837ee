// SPDX-License-Identifier: Apache-2.0
// Local response norm (over channels) and local contrast norm (divisive, over space): the public functions, and the
// Problem struct that describes a call. The formulas are in lrn_math.h.
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

// y = x s^-beta with s = k + alpha / n * (the sum of squares over a window of n elements). The window has `size`
// elements along each dimension.
struct LrnOptions {
  int64_t size;
  double alpha, beta, k;
};

// x is [N, C, spatial...] with 2 to 5 dimensions.
Tensor lrn_forward(const Tensor& x, const LrnOptions&, const Call&);
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LrnOptions&, const Call&);

// x has at least 3 dimensions. `means` has the shape of x and any strides. If it is absent, the means are zero.
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&, const Call&);
struct LcnBackward {
  Tensor dx;
  std::optional<Tensor> dmeans;  // absent if the call has no means
};
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&,
                         const Call&);

// For engines.
double local_norm_bytes(const LrnProblem&);
double local_norm_flop(const LrnProblem&);
// The bytes of the workspace. Backward stores the weight g (see lrn_math.h) of each element, in the accumulator's type.
// Forward needs no workspace.
size_t local_norm_workspace(const LrnProblem&);
// Returns "" if the layout is dense NCHW or NHWC (channels_in_order() or channels_innermost()), otherwise the reason
// for rejecting the problem.
std::string why_not_cross_channel(const LrnProblem&);
// Like why_not_cross_channel(), but for local contrast norm over one or two spatial dimensions.
std::string why_not_spatial_window(const LrnProblem&);

}  // namespace minidnn
