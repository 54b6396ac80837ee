// SPDX-License-Identifier: Apache-2.0
// Python bindings of reductions.
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/reduce/reduce.h"

namespace minidnn {

void bind_reduce(py::module_& m) {
  register_family<ReduceProblem>();
  m.def(
      "reduce",
      [](const Tensor& x, const std::string& mode, py::handle axis, bool keepdims, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        std::optional<std::vector<int64_t>> dims;
        if (!axis.is_none()) dims = integers_from_python(axis, "reduce", "axis", "several, or None");
        ReleaseGil release;
        return reduce(x, mode, dims, keepdims, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("mode"), py::arg("axis"), py::arg("keepdims"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
