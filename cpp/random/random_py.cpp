// SPDX-License-Identifier: Apache-2.0
// Python bindings of the functions for random tensors, dropout, and the words of Philox.
#include <array>

#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/random/random.h"

namespace minidnn {

void bind_random(py::module_& m) {
  register_family<RandomProblem>();
  auto define_fill = [&m](const char* name, auto fill, const char* first, const char* second) {
    m.def(
        name,
        [fill](const Tensor& out, int64_t seed, int64_t offset, double a, double b, Algo algo, HandlePtr handle) {
          ReleaseGil release;
          fill(out, seed, offset, a, b, {std::move(algo), {}, std::move(handle)});
        },
        py::arg("out"), py::arg("seed"), py::arg("offset"), py::arg(first), py::arg(second), py::arg("algo"),
        py::arg("handle"));
  };
  define_fill("fill_uniform", &fill_uniform, "low", "high");
  define_fill("fill_normal", &fill_normal, "mean", "std");
  m.def(
      "dropout",
      [](const Tensor& x, double p, int64_t seed, int64_t offset, bool backward, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        ReleaseGil release;
        return dropout(backward ? "dropout_backward" : "dropout_forward", backward ? "dy" : "x", x, p, seed, offset,
                       {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("p"), py::arg("seed"), py::arg("offset"), py::arg("backward"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  m.def(
      "philox",
      [](std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
        const Four w = philox({{c[0], c[1], c[2], c[3]}}, {key[0], key[1]});
        return std::array<uint32_t, 4>{w.word[0], w.word[1], w.word[2], w.word[3]};
      },
      py::arg("counter"), py::arg("key"), "Philox 4x32-10, for tests against published vectors.");
}

}  // namespace minidnn
