// SPDX-License-Identifier: Apache-2.0
// Python bindings of activations.
#include "cpp/activation/activation.h"
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"

namespace minidnn {

void bind_activation(py::module_& m) {
  register_family<ActivationProblem>();
  m.def(
      "activation_forward",
      [](const Tensor& x, const std::string& mode, std::optional<double> alpha, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        ReleaseGil release;
        return activation_forward(x, activation_from(mode, "activation_forward", "mode"), alpha,
                                  {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("mode"), py::arg("alpha"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "activation_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& y, const std::string& mode, std::optional<double> alpha,
         Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return activation_backward(dy, x, y, activation_from(mode, "activation_backward", "mode"), alpha,
                                   {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("x"), py::arg("y"), py::arg("mode"), py::arg("alpha"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
