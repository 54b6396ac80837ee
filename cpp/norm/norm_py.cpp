// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/norm/norm.h"

namespace minidnn {

void bind_norm(py::module_& m) {
  register_family<NormProblem>();
  m.def(
      "batch_norm_forward_training",
      [](const Tensor& x, const Tensor& scale, const Tensor& bias, std::optional<Tensor> running_mean,
         std::optional<Tensor> running_var, double momentum, double eps, bool per_activation, std::string algo,
         HandlePtr handle) {
        py::gil_scoped_release release;
        auto [y, mean, inv_std] = batch_norm_forward_training(x, scale, bias, running_mean, running_var, momentum, eps,
                                                              per_activation, {std::move(algo), {}, std::move(handle)});
        return std::tuple(y, mean, inv_std);
      },
      py::arg("x"), py::arg("scale"), py::arg("bias"), py::arg("running_mean"), py::arg("running_var"),
      py::arg("momentum"), py::arg("eps"), py::arg("per_activation"), py::arg("algo"), py::arg("handle"));
  m.def(
      "batch_norm_forward_inference",
      [](const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean, const Tensor& var, double eps,
         bool per_activation, std::string algo, std::optional<Tensor> out, HandlePtr handle) {
        py::gil_scoped_release release;
        return batch_norm_forward_inference(x, scale, bias, mean, var, eps, per_activation,
                                            {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("scale"), py::arg("bias"), py::arg("mean"), py::arg("var"), py::arg("eps"),
      py::arg("per_activation"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "batch_norm_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& saved_mean, const Tensor& saved_inv_std,
         bool per_activation, std::string algo, HandlePtr handle) {
        py::gil_scoped_release release;
        auto [dx, dscale, dbias] = batch_norm_backward(dy, x, scale, saved_mean, saved_inv_std, per_activation,
                                                       {std::move(algo), {}, std::move(handle)});
        return std::tuple(dx, dscale, dbias);
      },
      py::arg("dy"), py::arg("x"), py::arg("scale"), py::arg("saved_mean"), py::arg("saved_inv_std"),
      py::arg("per_activation"), py::arg("algo"), py::arg("handle"));
}

}  // namespace minidnn
