// SPDX-License-Identifier: Apache-2.0
// Sums, means, products, extremes, indices of extremes, norms, and whether any or all elements are true, over any
// dimensions: the public function, its checks and its problem. Maths: reduce_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/reduce/reduce_math.h"

namespace minidnn {

template <> struct Family<ReduceProblem> {
  using Args = ReduceArgs;
  static constexpr const char* name = "reduce";
  static std::string text(const ReduceProblem&);
  static Args scratch(const ReduceProblem&, Scratch&);
  static const Engines<ReduceProblem>& cpu_engines();
  static const Engines<ReduceProblem>& cuda_engines();
};

// `mode` is spelled as in the problem's text. Negative `axes` count from the end; nullopt reduces all dimensions.
Tensor reduce(const Tensor& x, const std::string& mode, const std::optional<std::vector<int64_t>>& axes, bool keepdims,
              const Call& call);

double reduce_bytes(const ReduceProblem&);

// Calls f(kind, Acc{}) with both as compile-time constants.
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

// The description with neighbouring dimensions joined where their strides allow, and without dimensions of length one.
// `any_order`: the dimensions are first sorted by stride, the largest first; for results that do not depend on the
// order of elements.
TensorDesc joined(const TensorDesc&, bool any_order);

}  // namespace minidnn
