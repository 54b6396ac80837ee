// SPDX-License-Identifier: Apache-2.0
// Activations forward and backward: the public functions, their checks and their problem. Maths: activation_math.h.
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

std::string name(Activation);  // "clipped_relu"
// ShapeError lists the modes; `argument` is the parameter's name in the caller's signature.
Activation activation_from(const std::string& name, const char* call, const char* argument = "activation");
double default_alpha(Activation);

// Without `alpha`, default_alpha(mode) is used. `out` may be x.
Tensor activation_forward(const Tensor& x, Activation mode, std::optional<double> alpha, const Call& call);
// dx = dy * f'(x); `out` may be x or dy. y = f(x) is checked but not read: every derivative is computed from x.
Tensor activation_backward(const Tensor& dy, const Tensor& x, const Tensor& y, Activation mode,
                           std::optional<double> alpha, const Call& call);

// Bytes and flop for estimates, shared by the engines of both devices.
double activation_bytes(const ActivationProblem&);
double activation_flop(const ActivationProblem&);
// The activation for epilogues on the CPU (cpp/simd/gemm_microkernel.h).
struct FloatsFunction;
FloatsFunction activation_on_floats(Activation);

}  // namespace minidnn
