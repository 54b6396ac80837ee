// SPDX-License-Identifier: Apache-2.0
// Copies: the public functions. They scale and accumulate, change dtype, layout or strides, and copy between devices.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/transform/transform_math.h"

namespace minidnn {

template <> struct Family<TransformProblem> {
  using Args = TransformArgs;
  static constexpr const char* name = "transform";
  static std::string text(const TransformProblem&);
  static Args scratch(const TransformProblem&, Scratch&);
  static const Engines<TransformProblem>& cpu_engines();
  static const Engines<TransformProblem>& cuda_engines();
};

// Computes alpha * x + beta * out, where x is broadcast to the shape of `out`. Without `out`, beta must be 0, and the
// result has the shape of x. Its dtype and layout are those of x, unless `dtype` and `layout` are given. With alpha = 1
// and beta = 0, elements are copied exactly, or cast between any dtypes.
Tensor transform(const Tensor& x, double alpha, double beta, std::optional<DType> dtype, std::optional<Layout> layout,
                 const Call& call);

// Concatenates tensors along `axis`, by one copy per tensor. A negative axis counts from the end. The layout of the
// result is preferred_layout() of the first tensor.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

// Returns x on the given place (CPU or GPU), with the given dtype and layout. Returns x itself if it already has these
// and `copy` is false. Waits for the stream only if data moves between a GPU and host memory.
Tensor to(const Tensor& x, std::optional<Place>, std::optional<DType>, std::optional<Layout>, bool copy);

// Returns a tensor of another shape with the elements of x in row-major order. It is a view if the strides allow it,
// else a copy. One size in `shape` may be -1, which is computed from the others.
Tensor reshape(const Tensor& x, Shape shape);

// Returns a tensor without dimensions on the CPU. Its dtype is float64 for a double, int64 for an int64_t.
Tensor scalar_of(double);
Tensor scalar_of(int64_t);
// Returns a tensor whose elements all have the value `scalar`, cast to their dtype. The work is ordered on the stream
// of the current handle.
Tensor full(const TensorDesc&, Place, const Tensor& scalar);

double transform_bytes(const TransformProblem&);

}  // namespace minidnn
