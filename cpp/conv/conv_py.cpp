// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/conv/conv.h"
#include "cpp/engine/registry.h"

namespace minidnn {
namespace {

ConvAttributes attributes(const char* call, py::handle stride, py::handle padding, py::handle dilation, int64_t groups,
                          const std::string& mode) {
  return {integers_from_python(stride, call, "stride"), integers_from_python(dilation, call, "dilation"),
          sides_from_python(padding, call, "padding"), groups, conv_flips(mode, call)};
}

}  // namespace

void bind_conv(py::module_& m) {
  register_family<ConvProblem>();
  register_family<ConvStatisticsProblem>();
  auto define_forward = [&m](const char* name, auto call) {
    m.def(
        name,
        [name, call](const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                     const std::optional<Tensor>& residual, py::handle stride, py::handle padding, py::handle dilation,
                     int64_t groups, const std::optional<std::string>& activation, const std::string& mode, Algo algo,
                     std::optional<Tensor> out, HandlePtr handle) {
          ConvAttributes a = attributes(name, stride, padding, dilation, groups, mode);
          ReleaseGil release;
          return call(x, w, bias, residual, a, activation ? activation_from(*activation, name) : Activation::identity,
                      Call{std::move(algo), std::move(out), std::move(handle)});
        },
        py::arg("x"), py::arg("w"), py::arg("bias"), py::arg("residual"), py::arg("stride"), py::arg("padding"),
        py::arg("dilation"), py::arg("groups"), py::arg("activation"), py::arg("mode"), py::arg("algo"), py::arg("out"),
        py::arg("handle"));
  };
  define_forward("conv_forward", &conv_forward);
  define_forward("conv_forward_statistics", [](auto&&... arguments) {
    ConvStatistics s = conv_forward_statistics(std::forward<decltype(arguments)>(arguments)...);
    return std::tuple{std::move(s.y), std::move(s.sum), std::move(s.sum_of_squares)};
  });
  // Defines the Python function conv_backward_data or conv_backward_filter. Both functions take dy, one operand (w or
  // x) and the shape of the result.
  auto define_gradient = [&m](const char* name, auto call, const char* operand, const char* shape) {
    m.def(
        name,
        [name, call](const Tensor& dy, const Tensor& other, const Shape& result, py::handle stride, py::handle padding,
                     py::handle dilation, int64_t groups, const std::string& mode, Algo algo, std::optional<Tensor> out,
                     HandlePtr handle) {
          ConvAttributes a = attributes(name, stride, padding, dilation, groups, mode);
          ReleaseGil release;
          return call(dy, other, result, a, {std::move(algo), std::move(out), std::move(handle)});
        },
        py::arg("dy"), py::arg(operand), py::arg(shape), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
        py::arg("groups"), py::arg("mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  };
  define_gradient("conv_backward_data", &conv_backward_data, "w", "x_shape");
  define_gradient("conv_backward_filter", &conv_backward_filter, "x", "w_shape");
  m.def(
      "conv_backward_bias",
      [](const Tensor& dy, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return conv_backward_bias(dy, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("algo"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
