// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one to three tensors, with broadcasting. The functions: pointwise_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/pointwise/pointwise_math.h"

namespace minidnn {

template <> struct Family<PointwiseProblem> {
  using Args = PointwiseArgs;
  static constexpr const char* name = "pointwise";
  static std::string text(const PointwiseProblem&);
  static Args scratch(const PointwiseProblem&, Scratch&);
  static const Engines<PointwiseProblem>& cpu_engines();
  static const Engines<PointwiseProblem>& cuda_engines();
};

struct PointwiseInfo {
  const char* name;
  PointwiseGroup group;
  int operands;  // kRealOperands ...
};
const PointwiseInfo& info(Pointwise);
Pointwise pointwise_from(const std::string& name, const char* call);  // ShapeError lists the functions
bool accepts(Pointwise, DType);  // of its operands; for `where`, of the second and third
int arity(PointwiseGroup);
bool gives_bool(PointwiseGroup);
std::vector<std::string> pointwise_names();

// op(a, b, c), broadcast as in NumPy; b and c only if the function takes them. The operands have one dtype, except that
// the first operand of `where` is bool. `out` may be an operand that has its shape and item size.
Tensor pointwise(Pointwise op, const Tensor& a, const std::optional<Tensor>& b, const std::optional<Tensor>& c,
                 const Call& call);

// The dtype that decides how elements are computed: that of the operands; for `where`, that of the second.
DType pointwise_dtype(const PointwiseProblem&);
PointwiseIndexing indexing_of(const PointwiseProblem&);
double pointwise_bytes(const PointwiseProblem&);
double pointwise_flop(const PointwiseProblem&);

}  // namespace minidnn
