// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/norm/local_norm.h"
#include "cpp/norm/row_norm.h"

namespace minidnn {
namespace {

bool relu_from(const std::optional<std::string>& activation, const char* call) {
  MINIDNN_CHECK(ShapeError, !activation || *activation == "relu", call, ": activation must be None or 'relu'; got '",
                *activation, "'");
  return activation.has_value();
}

RowNormKind kind_from(const std::string& call, const std::string& kind, int64_t axis_or_groups) {
  if (kind == "layer") return {RowNorm::layer, axis_or_groups};
  if (kind == "rms") return {RowNorm::rms, axis_or_groups};
  if (kind == "instance") return {RowNorm::group, 0};
  MINIDNN_CHECK(ShapeError, axis_or_groups >= 1, call, ": groups must be 1 or more; got ", axis_or_groups);
  return {RowNorm::group, axis_or_groups};
}

}  // namespace

void bind_norm(py::module_& m) {
  register_family<NormProblem>();
  register_family<RowNormProblem>();
  register_family<LocalNormProblem>();
  m.def(
      "lrn_forward",
      [](const Tensor& x, int64_t size, double alpha, double beta, double k, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        ReleaseGil release;
        return lrn_forward(x, {size, alpha, beta, k}, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("size"), py::arg("alpha"), py::arg("beta"), py::arg("k"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
  m.def(
      "lrn_backward",
      [](const Tensor& dy, const Tensor& x, int64_t size, double alpha, double beta, double k, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return lrn_backward(dy, x, {size, alpha, beta, k}, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("x"), py::arg("size"), py::arg("alpha"), py::arg("beta"), py::arg("k"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  // For layer, RMS, group and instance norm. ops/norm.py passes their names.
  m.def(
      "row_norm_forward",
      [](const std::string& call, const std::string& kind, int64_t axis_or_groups, const Tensor& x,
         std::optional<Tensor> scale, std::optional<Tensor> bias, double eps, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        RowNormForward r = row_norm_forward(call.c_str(), kind_from(call, kind, axis_or_groups), x, scale, bias, eps,
                                            {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.y, r.mean, r.inv_std);
      },
      py::arg("call"), py::arg("kind"), py::arg("axis_or_groups"), py::arg("x"), py::arg("scale"), py::arg("bias"),
      py::arg("eps"), py::arg("algo"), py::arg("handle"));
  m.def(
      "row_norm_backward",
      [](const std::string& call, const std::string& kind, int64_t axis_or_groups, const Tensor& dy, const Tensor& x,
         std::optional<Tensor> scale, std::optional<Tensor> mean, const Tensor& inv_std, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        RowNormBackward r = row_norm_backward(call.c_str(), kind_from(call, kind, axis_or_groups), dy, x, scale, mean,
                                              inv_std, {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.dx, r.dscale, r.dbias);
      },
      py::arg("call"), py::arg("kind"), py::arg("axis_or_groups"), py::arg("dy"), py::arg("x"), py::arg("scale"),
      py::arg("mean"), py::arg("inv_std"), py::arg("algo"), py::arg("handle"));
  m.def(
      "lcn_forward",
      [](const Tensor& x, std::optional<Tensor> means, int64_t size, double alpha, double beta, double k, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return lcn_forward(x, means, {size, alpha, beta, k}, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("means"), py::arg("size"), py::arg("alpha"), py::arg("beta"), py::arg("k"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  m.def(
      "lcn_backward",
      [](const Tensor& dy, const Tensor& x, std::optional<Tensor> means, int64_t size, double alpha, double beta,
         double k, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        LcnBackward r =
            lcn_backward(dy, x, means, {size, alpha, beta, k}, {std::move(algo), std::move(out), std::move(handle)});
        return std::tuple(r.dx, r.dmeans);
      },
      py::arg("dy"), py::arg("x"), py::arg("means"), py::arg("size"), py::arg("alpha"), py::arg("beta"), py::arg("k"),
      py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "batch_norm_forward_training",
      [](const Tensor& x, const Tensor& scale, const Tensor& bias, std::optional<Tensor> running_mean,
         std::optional<Tensor> running_var, double momentum, double eps, bool per_activation,
         std::optional<std::string> activation, std::optional<Tensor> residual, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        auto [y, mean, inv_std] =
            batch_norm_forward_training(x, scale, bias, running_mean, running_var, momentum, eps, per_activation,
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
            x, scale, bias, mean, var, eps, per_activation,
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
