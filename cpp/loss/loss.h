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
  static Args scratch(const LossProblem&, Scratch&);
  static const Engines<LossProblem>& cpu_engines();
  static const Engines<LossProblem>& cuda_engines();
};

struct CrossEntropy {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::string reduction = "mean";  // how the losses of rows are combined: "mean", "none" or "sum"
};
// Returns the loss, and log(sum(exp(x))) of each row of classes, which the gradient needs. Both are float64 if x is
// float64, else float32.
std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& x, const Tensor& target, const CrossEntropy&,
                                                const Call&);
// `lse` is the second result of cross_entropy_forward. `out` may be the same tensor as x.
Tensor cross_entropy_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& lse,
                              const CrossEntropy&, const Call&);

// The bytes and FLOP of a call, for estimates of the time. CPU and CUDA engines use them.
double loss_bytes(const LossProblem&);
double loss_flop(const LossProblem&);
// The workspace of the CPU engines in bytes. It holds the losses of all rows until they are summed, in float64 if x is
// float64, else float32.
size_t loss_workspace(const LossProblem&);
bool loss_rows_in_order(const LossProblem&);  // whether rows of classes are contiguous, in the order of the targets

}  // namespace minidnn
