// SPDX-License-Identifier: Apache-2.0
// The public C++ functions that compute activations and their gradients, and functions that engines call. The formulas
// are in activation_math.h.
#pragma once
#include <functional>

#include "cpp/activation/activation_math.h"
#include "cpp/engine/op.h"

namespace minidnn {

template <> struct Family<ActivationProblem> {
  using Args = ActivationArgs;
  static constexpr const char* name = "activation";
  static std::string text(const ActivationProblem&);
  static void ports(const ActivationProblem&, Args&, Ports&);
  static const Engines<ActivationProblem>& cpu_engines();
  static const Engines<ActivationProblem>& cuda_engines();
};

// Returns the name of an activation in Python, such as "clipped_relu".
std::string name(Activation);
// Returns the activation of the given name. If there is none, throws a ShapeError that lists all names. `argument` is
// the name of the caller's parameter, which the message of the error quotes.
Activation activation_from(const std::string& name, const char* call, const char* argument = "activation");
double default_alpha(Activation);

// Returns y = f(x), where f is the activation. If `alpha` is absent, default_alpha(mode) is used. `out` may be the same
// tensor as x.
Tensor activation_forward(const Tensor& x, Activation mode, std::optional<double> alpha, const Call& call);
// Returns dx = dy * f'(x), where f is the activation. `out` may be the same tensor as x or dy. The shape of y is
// checked, but its elements are not read: every derivative is computed from x.
Tensor activation_backward(const Tensor& dy, const Tensor& x, const Tensor& y, Activation mode,
                           std::optional<double> alpha, const Call& call);

// activation_bytes() returns the bytes that a call moves, activation_flop() its floating-point operations. CPU and CUDA
// engines estimate their time from these numbers.
double activation_bytes(const ActivationProblem&);
double activation_flop(const ActivationProblem&);
// Returns an activation as a function on arrays of floats. The epilogues of matrix products on the CPU call it
// (cpp/simd/gemm_microkernel.h).
struct FloatsFunction;
FloatsFunction activation_on_floats(Activation);
// Computes n contiguous elements of y or dx, with the bits of the engine of the CPU that is chosen for the problem. The
// arrays have the dtype of the problem. `out` may be x or dy.
using ActivationSpan = std::function<void(const void* x, const void* dy, void* out, int64_t n, double alpha)>;
ActivationSpan activation_on_span(const ActivationProblem&);

}  // namespace minidnn
