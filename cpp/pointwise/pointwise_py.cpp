// SPDX-License-Identifier: Apache-2.0
// Python bindings of the pointwise functions.
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {

void bind_pointwise(py::module_& m) {
  register_family<PointwiseProblem>();
  m.def(
      "pointwise",
      [](const std::string& op, const Tensor& a, std::optional<Tensor> b, std::optional<Tensor> c, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return pointwise(pointwise_from(op, "pointwise"), a, b, c,
                         {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("op"), py::arg("a"), py::arg("b"), py::arg("c"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def("pointwise_names", &pointwise_names);
}

}  // namespace minidnn
