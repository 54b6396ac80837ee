// SPDX-License-Identifier: Apache-2.0
// The CTC loss: the public functions. They check their arguments and describe the call as a CtcProblem. The formulas
// are in ctc_math.h.
#pragma once
#include "cpp/ctc/ctc_math.h"
#include "cpp/engine/op.h"

namespace minidnn {

template <> struct Family<CtcProblem> {
  using Args = CtcArgs;
  static constexpr const char* name = "ctc";
  static std::string text(const CtcProblem&);
  static void ports(const CtcProblem&, Args&, Ports&);
  static const Engines<CtcProblem>& cpu_engines();
  static const Engines<CtcProblem>& cuda_engines();
};

struct CtcOptions {
  int64_t blank = 0;
  std::string reduction = "mean";  // how the losses of all sequences are combined: "mean", "sum" or "none"
  bool zero_infinity = false, logits = false;
};
struct CtcTargets {  // what the loss compares x with
  const Tensor &targets, &input_lengths, &target_lengths;
};
// What the backward function needs of the forward function. There is no lse if x are log-probabilities.
struct CtcSaved {
  Tensor alpha, exponents;
  std::optional<Tensor> lse;
};
struct CtcLoss {
  Tensor loss;
  CtcSaved saved;
};
CtcLoss ctc_loss_forward(const Tensor& x, const CtcTargets&, const CtcOptions&, const Call&);
// Returns the gradient of x.
Tensor ctc_loss_backward(const Tensor& dloss, const Tensor& x, const CtcTargets&, const CtcSaved&, const CtcOptions&,
                         const Call&);

// The bytes and FLOP of a call, if all sequences have the greatest lengths. Engines estimate their time from these
// numbers.
double ctc_bytes(const CtcProblem&);
double ctc_flop(const CtcProblem&);

}  // namespace minidnn
