// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/softmax/softmax.h"

namespace minidnn {

void bind_softmax(py::module_& m) {
  register_family<SoftmaxProblem>();
  m.def(
      "softmax_forward",
      [](const Tensor& x, int64_t axis, bool log, double scale, std::optional<Tensor> mask, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return softmax_forward(x, axis, log, scale, mask, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("axis"), py::arg("log"), py::arg("scale"), py::arg("mask"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
  m.def(
      "softmax_backward",
      [](const Tensor& dy, const Tensor& y, int64_t axis, bool log, double scale, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        ReleaseGil release;
        return softmax_backward(dy, y, axis, log, scale, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("y"), py::arg("axis"), py::arg("log"), py::arg("scale"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
