// SPDX-License-Identifier: Apache-2.0
// Implements activation.h: checks of arguments, the text that names a call in tests and tuning files, and estimates of
// the bytes and FLOP of a call.
#include "cpp/activation/activation.h"

namespace minidnn {
namespace {

struct Mode {
  const char* name;
  double alpha;  // the default value of the parameter alpha of an activation; 0 if the activation has no alpha
};
constexpr Mode kModes[kActivations] = {
    // The activations are in the order of enum Activation.
    {"identity", 0}, {"relu", 0},      {"clipped_relu", 6}, {"leaky_relu", 0.01}, {"tanh", 0},
    {"sigmoid", 0},  {"elu", 1},       {"gelu", 0},         {"gelu_tanh", 0},     {"softplus", 1},
    {"silu", 0},     {"hardswish", 0}, {"mish", 0},
};

double alpha_of(const char* call, Activation mode, std::optional<double> alpha) {
  double a = alpha.value_or(default_alpha(mode));
  MINIDNN_CHECK(ShapeError, mode != Activation::softplus || a > 0, call, ": softplus needs alpha > 0; got ", a);
  MINIDNN_CHECK(ShapeError, mode != Activation::clipped_relu || a >= 0, call, ": clipped_relu needs alpha >= 0; got ",
                a);
  return a;
}

}  // namespace

std::string name(Activation mode) { return kModes[int64_t(mode)].name; }
double default_alpha(Activation mode) { return kModes[int64_t(mode)].alpha; }

Activation activation_from(const std::string& text, const char* call, const char* argument) {
  std::string known;
  for (int i = 0; i < kActivations; ++i) {
    if (text == kModes[i].name) return Activation(i);
    known += cat(i ? ", " : "", kModes[i].name);
  }
  throw ShapeError(cat(call, ": ", argument, " must be one of ", known, "; got '", text, "'"));
}

std::string Family<ActivationProblem>::text(const ActivationProblem& p) {
  bool backward = p.direction == ActivationDirection::backward;
  std::string text = cat(head_text("activation", backward ? "backward" : "forward", p.x.dtype), " ",
                         minidnn::name(p.mode), " x=", problem_text(p.x));
  if (backward && !same_strides(p.dy, dense_like(p.x, p.x.dtype, name))) text += " dy=" + problem_text(p.dy);
  return text + out_text(p.out, dense_like(p.x, p.x.dtype, name));
}

void Family<ActivationProblem>::ports(const ActivationProblem& p, ActivationArgs& a, Ports& v) {
  const bool backward = p.direction == ActivationDirection::backward;
  v.in("x", p.x, a.x);
  if (backward) v.in("dy", p.dy, a.dy);
  v.out(backward ? "dx" : "y", p.out, a.out);
  v.number("alpha", a.alpha, default_alpha(p.mode));
}

Tensor activation_forward(const Tensor& x, Activation mode, std::optional<double> alpha, const Call& call) {
  const char* me = "activation_forward";
  Handle& h = check_operands(me, call, {{"x", x}});
  double a = alpha_of(me, mode, alpha);
  Tensor y = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h, {}, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  run(h, ActivationProblem{ActivationDirection::forward, mode, x.desc, {}, y.desc},
      ActivationArgs{x.data, nullptr, y.data, a}, call.algo);
  return y;
}

Tensor activation_backward(const Tensor& dy, const Tensor& x, const Tensor& y, Activation mode,
                           std::optional<double> alpha, const Call& call) {
  const char* me = "activation_backward";
  Handle& h = check_operands(me, call, {{"dy", dy}, {"x", x}, {"y", y}});
  check_shape(me, {"x", x}, shape_of(dy.desc), "like dy");
  check_shape(me, {"y", y}, shape_of(dy.desc), "like dy");
  double a = alpha_of(me, mode, alpha);
  Tensor dx = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h, {}, {{"x", x}, {"dy", dy}});
  if (dx.desc.numel() == 0) return dx;
  run(h, ActivationProblem{ActivationDirection::backward, mode, x.desc, dy.desc, dx.desc},
      ActivationArgs{x.data, dy.data, dx.data, a}, call.algo);
  return dx;
}

double activation_bytes(const ActivationProblem& p) {
  int tensors = p.direction == ActivationDirection::backward ? 3 : 2;
  return double(p.x.numel()) * double(itemsize(p.x.dtype)) * tensors;
}
double activation_flop(const ActivationProblem& p) {
  // Returns an estimate of the FLOP of a call. identity, relu, clipped_relu and leaky_relu count as 2 FLOP per element.
  // All other activations count as 20, because most of them call exp, tanh or erf.
  return double(p.x.numel()) * (p.mode <= Activation::leaky_relu ? 2 : 20);
}

}  // namespace minidnn
