// SPDX-License-Identifier: Apache-2.0
// Python bindings of the functions transform() and concat().
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/transform/transform.h"

namespace minidnn {

void bind_transform(py::module_& m) {
  register_family<TransformProblem>();
  m.def(
      "transform",
      [](const Tensor& x, double alpha, double beta, py::handle dtype, std::optional<std::string> layout, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        auto type = optional_dtype(dtype);
        auto order = optional_layout(layout, x.desc.rank);
        ReleaseGil release;
        return transform(x, alpha, beta, type, order, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("alpha"), py::arg("beta"), py::arg("dtype"), py::arg("layout"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  m.def(
      "concat",
      [](const std::vector<Tensor>& tensors, int64_t axis, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return concat(tensors, axis, {"", std::move(out), std::move(handle)});
      },
      py::arg("tensors"), py::arg("axis"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
