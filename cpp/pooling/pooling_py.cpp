// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/pooling/pooling.h"

namespace minidnn {
namespace {

// The keyword parameters that all pooling functions take after their tensors.
struct Keywords {
  py::handle window;
  std::string mode;
  int64_t norm;
  py::handle stride, padding, dilation;
  bool ceil_mode;

  PoolingAttributes attributes(const char* call) const {
    PoolingAttributes a{integers_from_python(window, call, "window"), pooling_mode_from(mode, call)};
    if (!stride.is_none()) a.stride = integers_from_python(stride, call, "stride");
    a.padding = sides_from_python(padding, call, "padding");
    a.dilation = integers_from_python(dilation, call, "dilation");
    a.ceil_mode = ceil_mode;
    a.norm = norm;
    return a;
  }
};
PoolingAttributes adaptive(const char* call, py::handle size, const std::string& mode, int64_t norm) {
  PoolingAttributes a;
  a.mode = pooling_mode_from(mode, call);
  a.norm = norm;
  a.size = integers_from_python(size, call, "size");
  MINIDNN_CHECK(ShapeError, !a.size.empty(), call,
                ": size must be one value or one for each spatial dimension; got []");
  return a;
}

}  // namespace

void bind_pooling(py::module_& m) {
  register_family<PoolingProblem>();
  m.def(
      "pool_forward",
      [](const Tensor& x, py::handle window, const std::string& mode, int64_t norm, py::handle stride,
         py::handle padding, py::handle dilation, bool ceil_mode, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        auto a = Keywords{window, mode, norm, stride, padding, dilation, ceil_mode}.attributes("pool_forward");
        ReleaseGil release;
        return pool_forward(x, a, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("window"), py::arg("mode"), py::arg("norm"), py::arg("stride"), py::arg("padding"),
      py::arg("dilation"), py::arg("ceil_mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "pool_forward_with_indices",
      [](const Tensor& x, py::handle window, py::handle index_dtype, py::handle stride, py::handle padding,
         py::handle dilation, bool ceil_mode, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        const char* me = "pool_forward_with_indices";
        auto a = Keywords{window, "max", 2, stride, padding, dilation, ceil_mode}.attributes(me);
        DType dtype = dtype_from_python(index_dtype, "index_dtype");
        ReleaseGil release;
        return pool_forward_with_indices(x, a, dtype, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("window"), py::arg("index_dtype"), py::arg("stride"), py::arg("padding"),
      py::arg("dilation"), py::arg("ceil_mode"), py::arg("algo"), py::arg("out"), py::arg("handle"));
  m.def(
      "pool_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& y, py::handle window, const std::string& mode, int64_t norm,
         py::handle stride, py::handle padding, py::handle dilation, bool ceil_mode, std::optional<Tensor> indices,
         Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        auto a = Keywords{window, mode, norm, stride, padding, dilation, ceil_mode}.attributes("pool_backward");
        ReleaseGil release;
        return pool_backward(dy, x, y, a, {std::move(algo), std::move(out), std::move(handle)}, indices);
      },
      py::arg("dy"), py::arg("x"), py::arg("y"), py::arg("window"), py::arg("mode"), py::arg("norm"), py::arg("stride"),
      py::arg("padding"), py::arg("dilation"), py::arg("ceil_mode"), py::arg("indices"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
  m.def(
      "adaptive_pool_forward",
      [](const Tensor& x, py::handle size, const std::string& mode, int64_t norm, Algo algo, std::optional<Tensor> out,
         HandlePtr handle) {
        auto a = adaptive("adaptive_pool_forward", size, mode, norm);
        ReleaseGil release;
        return pool_forward(x, a, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("x"), py::arg("size"), py::arg("mode"), py::arg("norm"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
  m.def(
      "adaptive_pool_backward",
      [](const Tensor& dy, const Tensor& x, const Tensor& y, py::handle size, const std::string& mode, int64_t norm,
         Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        const char* me = "adaptive_pool_backward";
        MINIDNN_CHECK(ShapeError, dy.desc.rank == x.desc.rank && dy.desc.rank > 2, me,
                      ": dy must be [N, C, size...] of x ", shape_text(x.desc), "; got ", shape_text(dy.desc));
        auto sizes = shape_of(dy.desc).subspan(2);
        MINIDNN_CHECK(ShapeError, !std::ranges::count(sizes, 0), me,
                      ": dy must have elements in its spatial dimensions; got ", shape_text(dy.desc));
        auto a = adaptive(me, size.is_none() ? tuple_of(sizes) : size, mode, norm);
        ReleaseGil release;
        return pool_backward(dy, x, y, a, {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dy"), py::arg("x"), py::arg("y"), py::arg("size"), py::arg("mode"), py::arg("norm"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
