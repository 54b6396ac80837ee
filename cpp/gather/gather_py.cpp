// SPDX-License-Identifier: Apache-2.0
// Python bindings of the functions for gather and its gradient.
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/gather/gather.h"

namespace minidnn {

void bind_gather(py::module_& m) {
  register_family<GatherProblem>();
  m.def(
      "gather",
      [](const Tensor& x, const Tensor& index, int64_t axis, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return gather(x, index, axis, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("index"), py::arg("axis"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "gather_backward",
      [](const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return gather_backward(dy, index, x_shape, axis, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("index"), py::arg("x_shape"), py::arg("axis"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
