// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/layer_norm/layer_norm.h"

namespace minidnn {

void bind_layer_norm(py::module_& m) {
  register_family<LayerNormProblem>();
  // The bindings below serve layer, RMS, group and instance norm. ops/layer_norm.py passes the name of the public
  // function as `call`.
  m.def(
      "layer_norm_forward",
      [](const std::string& call, const std::string& kind, int64_t axis_or_groups, const Tensor& x,
         std::optional<Tensor> scale, std::optional<Tensor> bias, double eps, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        LayerNormForward r = layer_norm_forward(call.c_str(), row_norm_kind(call, kind, axis_or_groups), x, scale, bias,
                                                eps, {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.y, r.mean, r.inv_std);
      },
      py::arg("call"), py::arg("kind"), py::arg("axis_or_groups"), py::arg("x"), py::arg("scale"), py::arg("bias"),
      py::arg("eps"), py::arg("algo"), py::arg("handle"));
  m.def(
      "layer_norm_backward",
      [](const std::string& call, const std::string& kind, int64_t axis_or_groups, const Tensor& dy, const Tensor& x,
         std::optional<Tensor> scale, std::optional<Tensor> mean, const Tensor& inv_std, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        LayerNormBackward r = layer_norm_backward(call.c_str(), row_norm_kind(call, kind, axis_or_groups), dy, x, scale,
                                                  mean, inv_std, {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.dx, r.dscale, r.dbias);
      },
      py::arg("call"), py::arg("kind"), py::arg("axis_or_groups"), py::arg("dy"), py::arg("x"), py::arg("scale"),
      py::arg("mean"), py::arg("inv_std"), py::arg("algo"), py::arg("handle"));
}

}  // namespace minidnn
