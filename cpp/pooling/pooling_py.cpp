// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace {

PoolingAttributes attributes_from_python(const char* call, py::handle window, const std::string& mode,
                                         py::handle stride, py::handle padding, py::handle dilation, bool ceil_mode) {
  PoolingAttributes a{integers_from_python(window, call, "window"), pooling_mode_from(mode, call)};
  if (!stride.is_none()) a.stride = integers_from_python(stride, call, "stride");
  a.padding = sides_from_python(padding, call, "padding");
  a.dilation = integers_from_python(dilation, call, "dilation");
  a.ceil_mode = ceil_mode;
  return a;
}

}  // namespace

void bind_pooling(py::module_& m) {
  register_family<PoolingProblem>();
  m.def(
      "pool_forward",
      [](const Tensor& x, py::handle window, const std::string& mode, py::handle stride, py::handle padding,
         py::handle dilation, bool ceil_mode, std::string algo, std::optional<Tensor> out, HandlePtr handle) {
        auto a = attributes_from_python("pool_forward", window, mode, stride, padding, dilation, ceil_mode);
        py::gil_scoped_release release;
        return pool_forward(x, a, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("window"), py::arg("mode"), py::arg("stride"), py::arg("padding"), py::arg("dilation"),
      py::arg("ceil_mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "pool_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& y, py::handle window, const std::string& mode,
         py::handle stride, py::handle padding, py::handle dilation, bool ceil_mode, std::string algo,
         std::optional<Tensor> out, HandlePtr handle) {
        auto a = attributes_from_python("pool_backward", window, mode, stride, padding, dilation, ceil_mode);
        py::gil_scoped_release release;
        return pool_backward(dy, x, y, a, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("x"), py::arg("y"), py::arg("window"), py::arg("mode"), py::arg("stride"),
      py::arg("padding"), py::arg("dilation"), py::arg("ceil_mode"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
