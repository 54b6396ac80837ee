// SPDX-License-Identifier: Apache-2.0
// Python bindings of copies, padding, concatenation and gathering.
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/transform/gather.h"
#include "cpp/transform/pad.h"
#include "cpp/transform/pieces.h"

namespace minidnn {

void bind_transform(py::module_& m) {
  register_family<TransformProblem>();
  register_family<PadProblem>();
  register_family<GatherProblem>();
  m.def(
      "transform",
      [](const Tensor& x, double alpha, double beta, py::handle dtype, std::optional<std::string> layout, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        auto type = optional_dtype(dtype);
        auto order = optional_layout(layout, x.desc.rank);
        ReleaseGil release;
        return transform(x, alpha, beta, type, order, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("alpha"), py::arg("beta"), py::arg("dtype"), py::arg("layout"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  m.def(
      "concat",
      [](const std::vector<Tensor>& tensors, int64_t axis, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return concat(tensors, axis, {"", std::move(out), std::move(handle)});
      },
      py::arg("tensors"), py::arg("axis"), py::arg("out"), py::arg("handle"));
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
  m.def(
      "gather",
      [](const Tensor& x, const Tensor& index, int64_t axis, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return gather(x, index, axis, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("index"), py::arg("axis"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "gather_backward",
      [](const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        return gather_backward(dy, index, x_shape, axis, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("index"), py::arg("x_shape"), py::arg("axis"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

}  // namespace minidnn
