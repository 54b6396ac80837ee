// SPDX-License-Identifier: Apache-2.0
// Reductions over any dimensions: sums, means, products, minima, maxima, their indices, norms, any and all. This header
// has the public function and the struct that describes a call. The formulas are in reduce_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

template <> struct Family<ReduceProblem> {
  using Args = ReduceArgs;
  static constexpr const char* name = "reduce";
  static std::string text(const ReduceProblem&);
  static void ports(const ReduceProblem&, Args&, Ports&);
  static const Engines<ReduceProblem>& cpu_engines();
  static const Engines<ReduceProblem>& cuda_engines();
};

// Reduces x over the dimensions `axes`. `mode` is the name of a ReduceMode, such as "sum". Negative `axes` count from
// the end. Without `axes`, all dimensions are reduced.
Tensor reduce(const Tensor& x, const std::string& mode, const std::optional<std::vector<int64_t>>& axes, bool keepdims,
              const Call& call);

// Reduces contiguous rows of float32 on the CPU, one result for each. `mode` is one with floating results.
void reduce_rows(ReduceMode mode, const float* x, int64_t rows, int64_t cols, float* to);

double reduce_bytes(const ReduceProblem&);

// Calls f(kind, Acc{}), where `kind` is an integral_constant of the ReduceKind, and Acc the C++ type in which elements
// are combined.
template <class F> decltype(auto) with_reduction(const ReduceProblem& p, F&& f) {
  auto by_kind = [&](auto acc) {
    switch (kind_of(p.mode)) {
      case ReduceKind::prod:
        return f(std::integral_constant<ReduceKind, ReduceKind::prod>{}, acc);
      case ReduceKind::max:
        return f(std::integral_constant<ReduceKind, ReduceKind::max>{}, acc);
      case ReduceKind::arg:
        return f(std::integral_constant<ReduceKind, ReduceKind::arg>{}, acc);
      default:
        return f(std::integral_constant<ReduceKind, ReduceKind::sum>{}, acc);
    }
  };
  switch (reduced_in(p.mode, p.x.dtype)) {
    case ReduceIn::float64:
      return by_kind(double{});
    case ReduceIn::int64:
      return by_kind(int64_t{});
    default:
      return by_kind(float{});
  }
}

// Returns the tensor without dimensions of size 1, and with contiguous dimensions joined. If the order of elements does
// not matter (`any_order`), dimensions are first sorted by stride.
TensorDesc joined(const TensorDesc&, bool any_order);

}  // namespace minidnn
