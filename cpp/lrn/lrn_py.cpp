// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/lrn/lrn.h"

namespace minidnn {

void bind_lrn(py::module_& m) {
  register_family<LrnProblem>();
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
}

}  // namespace minidnn
