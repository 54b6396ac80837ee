// SPDX-License-Identifier: Apache-2.0
// Local response norm (windows over channels) and local contrast norm (divisive, windows over space): the public
// functions, and the struct that describes a call. The formulas are in lrn_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "cpp/lrn/lrn_math.h"

namespace minidnn {

template <> struct Family<LrnProblem> {
  using Args = LrnArgs;
  static constexpr const char* name = "lrn";
  static std::string text(const LrnProblem&);
  static void ports(const LrnProblem&, Args&, Ports&);
  static const Engines<LrnProblem>& cpu_engines();
  static const Engines<LrnProblem>& cuda_engines();
};

// The options of local response norm and local contrast norm: y = x s^-beta, where s = k + alpha / n * (the sum of
// squares over a window of n elements). A window has `size` elements along each of its dimensions.
struct LrnOptions {
  int64_t size;
  double alpha, beta, k;
};

// Local response norm and its gradient. x is [N, C, spatial...] with 2 to 5 dimensions.
Tensor lrn_forward(const Tensor& x, const LrnOptions&, const Call&);
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LrnOptions&, const Call&);

// Local contrast norm. x has 3 to 5 dimensions. `means` has the shape of x and any strides. If `means` is absent, the
// means are zero.
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&, const Call&);
struct LcnBackward {
  Tensor dx;
  std::optional<Tensor> dmeans;  // the gradient of the means; absent if the call has no means
};
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LrnOptions&,
                         const Call&);

// Functions that engines call: the bytes and the FLOP of a call, from which they estimate their time.
double local_norm_bytes(const LrnProblem&);
double local_norm_flop(const LrnProblem&);
// The bytes of the workspace. The backward function stores the weight g of each element there (see lrn_math.h), as
// float64 if x is float64, else as float32. The forward function needs no workspace.
size_t local_norm_workspace(const LrnProblem&);
// Returns "" if all tensors are dense, have equal strides, and are in the order NCHW or NHWC. If not, returns the
// reason why a vectorised engine cannot run the problem.
std::string why_not_cross_channel(const LrnProblem&);
// Returns "" if a vectorised engine can run local contrast norm of these tensors. It needs one or two spatial
// dimensions, a dtype other than float64, and dense tensors with equal strides in the order NCHW or NHWC. If it cannot
// run them, returns the reason.
std::string why_not_spatial_window(const LrnProblem&);

}  // namespace minidnn
