// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/loss/loss.h"

namespace minidnn {

void bind_loss(py::module_& m) {
  register_family<LossProblem>();
  m.def(
      "cross_entropy_forward",
      [](const Tensor& x, const Tensor& target, int64_t axis, int64_t ignore_index, double label_smoothing,
         std::string reduction, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        auto [loss, lse] = cross_entropy_forward(x, target, {axis, ignore_index, label_smoothing, std::move(reduction)},
                                                 {std::move(algo), {}, std::move(handle)});
        return std::tuple(loss, lse);
      },
      py::arg("x"), py::arg("target"), py::arg("axis"), py::arg("ignore_index"), py::arg("label_smoothing"),
      py::arg("reduction"), py::arg("algo"), py::arg("handle"));
  m.def(
      "cross_entropy_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& lse, int64_t axis, int64_t ignore_index,
         double label_smoothing, std::string reduction, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return cross_entropy_backward(dy, x, target, lse, {axis, ignore_index, label_smoothing, std::move(reduction)},
                                      {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("x"), py::arg("target"), py::arg("lse"), py::arg("axis"), py::arg("ignore_index"),
      py::arg("label_smoothing"), py::arg("reduction"), py::arg("algo"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
