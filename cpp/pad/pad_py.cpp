// SPDX-License-Identifier: Apache-2.0
// Python bindings of the function pad().
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/pad/pad.h"

namespace minidnn {

void bind_pad(py::module_& m) {
  register_family<PadProblem>();
  m.def(
      "pad",
      [](const Tensor& x, py::handle widths, const std::string& mode, double value, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        std::vector<Sides> sides =
            sides_from_python(widths, "pad", "widths", "one or a pair (before, after) for each dimension");
        if (int64_t n; read_integer(widths, n)) sides.assign(size_t(x.desc.rank), {n, n});
        const PadMode how = pad_mode(mode, "pad");
        ReleaseGil release;
        return pad(x, sides, how, value, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("widths"), py::arg("mode"), py::arg("value"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
