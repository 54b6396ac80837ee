// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/conv/conv.h"
#include "cpp/engine/registry.h"

namespace minidnn {
namespace {

using Padding = decltype(ConvAttributes::padding);

}  // namespace

void bind_conv(py::module_& m) {
  register_family<ConvProblem>();
  m.def("conv_forward",
        [](const Tensor& x, const Tensor& w, std::optional<Tensor> bias, PerDimension stride, Padding padding,
           PerDimension dilation, int64_t groups, std::optional<std::string> activation, std::string mode, std::string algo,
           std::optional<Tensor> out, HandlePtr handle) {
          py::gil_scoped_release release;
          return conv_forward(x, w, bias, {std::move(stride), std::move(padding), std::move(dilation), groups, std::move(mode)},
                              activation ? activation_from(*activation, "conv_forward") : Activation::identity,
                              {std::move(algo), std::move(out), std::move(handle)});
        },
        py::arg("x"), py::arg("w"), py::arg("bias"), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
        py::arg("groups"), py::arg("activation"), py::arg("mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  // Both take a gradient, an operand and the shape of what they make.
  auto define_backward = [&m](const char* name, auto call, const char* operand, const char* shape) {
    m.def(name,
          [call](const Tensor& dy, const Tensor& other, const Shape& result, PerDimension stride, Padding padding,
                 PerDimension dilation, int64_t groups, std::string mode, std::string algo, std::optional<Tensor> out,
                 HandlePtr handle) {
            py::gil_scoped_release release;
            return call(dy, other, result, {std::move(stride), std::move(padding), std::move(dilation), groups, std::move(mode)},
                        {std::move(algo), std::move(out), std::move(handle)});
          },
          py::arg("dy"), py::arg(operand), py::arg(shape), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
          py::arg("groups"), py::arg("mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  };
  define_backward("conv_backward_data", &conv_backward_data, "w", "x_shape");
  define_backward("conv_backward_filter", &conv_backward_filter, "x", "w_shape");
  m.def("conv_backward_bias",
        [](const Tensor& dy, std::string algo, std::optional<Tensor> out, HandlePtr handle) {
          py::gil_scoped_release release;
          return conv_backward_bias(dy, {std::move(algo), std::move(out), std::move(handle)});
        },
        py::arg("dy"), py::arg("algo"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
