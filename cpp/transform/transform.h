// SPDX-License-Identifier: Apache-2.0
// Copies: scaling and accumulating, changing dtype, layout or strides, and moving between devices.
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

// alpha * x + beta * out, with x broadcast to out's shape. Without `out`, beta must be 0; the result then has x's
// shape, and `dtype` and `layout` where given. alpha = 1 and beta = 0 copies exactly, between any dtypes.
Tensor transform(const Tensor& x, double alpha, double beta, std::optional<DType> dtype, std::optional<Layout> layout,
                 const Call& call);

// Concatenates along `axis`, which counts from the end if negative, by one copy per tensor. The result has the
// preferred layout of the first tensor.
Tensor concat(const std::vector<Tensor>&, int64_t axis, const Call&);

// x on the given place, with the given dtype and layout; x itself if it already matches and `copy` is not set. Waits
// for the stream only if data moves between a GPU and host memory.
Tensor to(const Tensor& x, std::optional<Place>, std::optional<DType>, std::optional<Layout>, bool copy);

// x's elements in row-major order with another shape: a view if strides allow it, else a copy. One size may be -1.
Tensor reshape(const Tensor& x, Shape shape);

// Tensors without dimensions on the CPU, of dtype float64 and int64.
Tensor scalar_of(double);
Tensor scalar_of(int64_t);
// A tensor whose elements are all `scalar`, cast to its dtype; filled in stream order of the current handle.
Tensor full(const TensorDesc&, Place, const Tensor& scalar);

double transform_bytes(const TransformProblem&);

}  // namespace minidnn
