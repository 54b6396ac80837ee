// SPDX-License-Identifier: Apache-2.0
// The public functions that copy tensors. A copy can scale, accumulate, change the dtype, the layout or the strides,
// and move data between devices.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

template <> struct Family<TransformProblem> {
  using Args = TransformArgs;
  static constexpr const char* name = "transform";
  static std::string text(const TransformProblem&);
  static void ports(const TransformProblem&, Args&, Ports&);
  static const Engines<TransformProblem>& cpu_engines();
  static const Engines<TransformProblem>& cuda_engines();
};

// Computes alpha * x + beta * out, where x is broadcast to the shape of `out`. Without `out`, beta must be 0. The
// result then has the shape of x, and also the dtype and layout of x unless `dtype` or `layout` is given. With alpha =
// 1 and beta = 0, elements are copied exactly, or cast between any two dtypes.
Tensor transform(const Tensor& x, double alpha, double beta, std::optional<DType> dtype, std::optional<Layout> layout,
                 const Call& call);

// Concatenates tensors along dimension `axis`, by one copy per tensor. A negative axis counts from the end. The layout
// of the result is the layout (channels-first or channels-last) that the first tensor prefers.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

// Returns x on the given device (CPU or GPU), with the given dtype and layout. Returns x itself if x already has this
// device, dtype and layout, and `copy` is false. The function waits for the stream only if data moves between a GPU and
// host memory.
Tensor to(const Tensor& x, std::optional<Place>, std::optional<DType>, std::optional<Layout>, bool copy);

// Returns a tensor of the given shape that has the elements of x in row-major order. The result is a view if the
// strides of x allow it, and a copy if they do not. One size in `shape` may be -1. It is then computed from the
// remaining sizes.
Tensor reshape(const Tensor& x, Shape shape);

// Returns a view of a part of the same memory, which begins `offset` elements behind the first element of x. Throws
// ShapeError if the view reaches an element outside x.
Tensor as_strided(const Tensor& x, std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset);

// Returns a tensor without dimensions on the CPU. Its dtype is float64 for a C++ double, and int64 for an int64_t.
Tensor scalar_of(double);
Tensor scalar_of(int64_t);
// Returns a tensor whose elements all have the value of the tensor `scalar`, cast to the dtype of the result. The work
// is ordered on the stream of the handle; if it is null, on the stream of the current handle.
Tensor full(const TensorDesc&, Place, const Tensor& scalar, const HandlePtr& handle = nullptr);

// Casts n contiguous elements on the CPU. `from` is float32, float64, int32 or int64. The results have the C++ type in
// which elements of the dtype `to` are computed (PointwiseType), and the values of elements of this dtype. `y` may
// be x if its elements have the same size.
using CastSpan = void (*)(const void* x, void* y, int64_t n);
CastSpan cast_on_span(DType from, DType to);

double transform_bytes(const TransformProblem&);

}  // namespace minidnn
