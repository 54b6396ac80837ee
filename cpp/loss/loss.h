// SPDX-License-Identifier: Apache-2.0
// Cross-entropy with logits: the public functions. They check their arguments and describe the call as a LossProblem.
// The formulas are in loss_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/loss/loss_math.h"

namespace minidnn {

template <>
struct Family<LossProblem> {
  using Args = LossArgs;
  static constexpr const char* name = "loss";
  static std::string text(const LossProblem&);
  static void ports(const LossProblem&, Args&, Ports&);
  static const Engines<LossProblem>& cpu_engines();
  static const Engines<LossProblem>& cuda_engines();
};

struct CrossEntropy {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::string reduction = "mean";  // how the losses of all rows are combined: "mean", "sum" or "none"
};
// Returns two tensors: the loss, and log(sum(exp(x))) of each row of classes. The gradient needs the second tensor.
// Both are float64 if x is float64, else float32.
std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& x, const Tensor& target, const CrossEntropy&,
                                                const Call&);
// Returns the gradient of x. `lse` is the second tensor that cross_entropy_forward returns. `out` may be the same
// tensor as x.
Tensor cross_entropy_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& lse,
                              const CrossEntropy&, const Call&);

// The bytes and FLOP of a call. CPU and CUDA engines estimate their time from these numbers.
double loss_bytes(const LossProblem&);
double loss_flop(const LossProblem&);
// The workspace of the CPU engines in bytes. It holds the losses of all rows until they are added up. A loss is float64
// if x is float64, else float32.
size_t loss_workspace(const LossProblem&);
// Whether the rows of classes are contiguous and in the order of the targets.
bool loss_rows_in_order(const LossProblem&);

}  // namespace minidnn
