// SPDX-License-Identifier: Apache-2.0
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"

namespace minidnn {
namespace {

bool relu_from(const std::optional<std::string>& activation, const char* call) {
  MINIDNN_CHECK(ShapeError, !activation || *activation == "relu", call, ": activation must be None or 'relu'; got '",
                *activation, "'");
  return activation.has_value();
}

}  // namespace

void bind_batch_norm(py::module_& m) {
  register_family<BatchNormProblem>();
  m.def(
      "batch_norm_forward_training",
      [](const Tensor& x, const Tensor& scale, const Tensor& bias, std::optional<Tensor> running_mean,
         std::optional<Tensor> running_var, double momentum, double eps, bool per_activation,
         std::optional<std::string> activation, std::optional<Tensor> residual, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        auto [y, mean, inv_std] = batch_norm_forward_training(
            x, scale, bias, {std::move(running_mean), std::move(running_var), momentum}, {eps, per_activation},
            {relu_from(activation, "batch_norm_forward_training"), std::move(residual)},
            {std::move(algo), {}, std::move(handle)});
        return std::tuple(y, mean, inv_std);
      },
      py::arg("x"), py::arg("scale"), py::arg("bias"), py::arg("running_mean"), py::arg("running_var"),
      py::arg("momentum"), py::arg("eps"), py::arg("per_activation"), py::arg("activation"), py::arg("residual"),
      py::arg("algo"), py::arg("handle"));
  m.def(
      "batch_norm_forward_inference",
      [](const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean, const Tensor& var, double eps,
         bool per_activation, std::optional<std::string> activation, std::optional<Tensor> residual, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return batch_norm_forward_inference(
            x, scale, bias, mean, var, {eps, per_activation},
            {relu_from(activation, "batch_norm_forward_inference"), std::move(residual)},
            {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("scale"), py::arg("bias"), py::arg("mean"), py::arg("var"), py::arg("eps"),
      py::arg("per_activation"), py::arg("activation"), py::arg("residual"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
  m.def(
      "batch_norm_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& saved_mean, const Tensor& saved_inv_std,
         bool per_activation, std::optional<Tensor> y, std::optional<std::string> activation, bool dresidual, Algo algo,
         HandlePtr handle) {
        ReleaseGil release;
        BatchNormBackward r =
            batch_norm_backward(dy, x, scale, saved_mean, saved_inv_std, per_activation,
                                {relu_from(activation, "batch_norm_backward"), std::move(y), dresidual},
                                {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.dx, r.dscale, r.dbias, r.dresidual);
      },
      py::arg("dy"), py::arg("x"), py::arg("scale"), py::arg("saved_mean"), py::arg("saved_inv_std"),
      py::arg("per_activation"), py::arg("y"), py::arg("activation"), py::arg("dresidual"), py::arg("algo"),
      py::arg("handle"));
}

}  // namespace minidnn
