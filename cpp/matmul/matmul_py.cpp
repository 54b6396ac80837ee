// SPDX-License-Identifier: Apache-2.0
#include "cpp/activation/activation.h"
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

void bind_matmul(py::module_& m) {
  register_family<MatmulProblem>();
  m.def(
      "matmul",
      [](const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b, double alpha, double beta,
         std::optional<Tensor> c, std::optional<Tensor> bias, const std::optional<std::string>& activation, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        MatmulOptions options{transpose_a, transpose_b, alpha, beta, std::move(c), std::move(bias)};
        if (activation) options.activation = activation_from(*activation, "matmul");
        return matmul(a, b, options, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("a"), py::arg("b"), py::arg("transpose_a"), py::arg("transpose_b"), py::arg("alpha"), py::arg("beta"),
      py::arg("c"), py::arg("bias"), py::arg("activation"), py::arg("algo"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
