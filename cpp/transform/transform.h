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

// alpha * x + beta * out, x broadcast to out's shape. Without `out`, beta must be 0, and the result has x's shape, and
// `dtype` and `layout` where given. alpha = 1 and beta = 0 copies exactly, between any dtypes.
Tensor transform(const Tensor& x, double alpha, double beta, std::optional<DType> dtype, std::optional<Layout> layout,
                 const Call& call);

// x as the arguments ask, x itself when it is that already and `copy` is not set. Waits for the stream only when data
// leaves a GPU for host memory or comes from it.
Tensor to(const Tensor& x, std::optional<Place>, std::optional<DType>, std::optional<Layout>, bool copy);

// x's elements in row-major order under another shape: a view where strides allow, else a copy. One size may be -1.
Tensor reshape(const Tensor& x, Shape shape);

Tensor scalar_of(double);  // float64 and int64 without dimensions, on the CPU
Tensor scalar_of(int64_t);
// Every element a cast of `scalar`, in the current handle's stream order.
Tensor full(const TensorDesc&, Place, const Tensor& scalar);

double transform_bytes(const TransformProblem&);
const Engine<TransformProblem>& transform_tiled_cpu();  // transform_cpu.cpp

}  // namespace minidnn
