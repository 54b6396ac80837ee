// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax along an axis: the public functions, their checks and their problem. Maths: softmax_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

template <>
struct Family<SoftmaxProblem> {
  using Args = SoftmaxArgs;
  static constexpr const char* name = "softmax";
  static std::string text(const SoftmaxProblem&);
  static Args scratch(const SoftmaxProblem&, Scratch&);
  static const Engines<SoftmaxProblem>& cpu_engines();
  static const Engines<SoftmaxProblem>& cuda_engines();
};

// Softmax of scale x + mask; with a boolean mask, of scale x where it is true and -inf elsewhere. The mask is broadcast
// to x.
// `axis` counts from the end if negative. `out` may be x.
Tensor softmax_forward(const Tensor& x, int64_t axis, bool log, double scale, const std::optional<Tensor>& mask,
                       const Call& call);
// `y` is what softmax_forward returned for the same axis, `log` and scale. `out` may be dy or y.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log, double scale, const Call& call);

// x must be dense. Adjacent dimensions that the mask traverses as one are merged.
MaskLayout mask_layout(const SoftmaxProblem&);

// Bytes and flop for estimates, shared by the engines of both devices.
double softmax_bytes(const SoftmaxProblem&);
double softmax_flop(const SoftmaxProblem&);

}  // namespace minidnn
