// SPDX-License-Identifier: Apache-2.0
// The public C++ functions for activations, forward and backward, and what dispatch needs to know about them. The
// formulas are in activation_math.h.
#pragma once
#include "cpp/activation/activation_math.h"
#include "cpp/engine/op.h"

namespace minidnn {

template <> struct Family<ActivationProblem> {
  using Args = ActivationArgs;
  static constexpr const char* name = "activation";
  static std::string text(const ActivationProblem&);
  static Args scratch(const ActivationProblem&, Scratch&);
  static const Engines<ActivationProblem>& cpu_engines();
  static const Engines<ActivationProblem>& cuda_engines();
};

// The name of a mode in Python, such as "clipped_relu".
std::string name(Activation);
// Finds a mode by its name. For an unknown name, a ShapeError lists all modes; `argument` is the name of the caller's
// parameter, for this message.
Activation activation_from(const std::string& name, const char* call, const char* argument = "activation");
double default_alpha(Activation);

// Returns f(x). If `alpha` is absent, default_alpha(mode) is used. `out` may be x.
Tensor activation_forward(const Tensor& x, Activation mode, std::optional<double> alpha, const Call& call);
// Returns dx = dy * f'(x). `out` may be x or dy. y = f(x) is checked but not read: every derivative is computed from x.
Tensor activation_backward(const Tensor& dy, const Tensor& x, const Tensor& y, Activation mode,
                           std::optional<double> alpha, const Call& call);

// Bytes moved and floating-point operations of a call, from which the CPU and the CUDA engines estimate their time.
double activation_bytes(const ActivationProblem&);
double activation_flop(const ActivationProblem&);
// The activation as a function on arrays of floats, for the epilogues of matrix products on the CPU
// (cpp/simd/gemm_microkernel.h).
struct FloatsFunction;
FloatsFunction activation_on_floats(Activation);

}  // namespace minidnn
