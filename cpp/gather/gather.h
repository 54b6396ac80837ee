// SPDX-License-Identifier: Apache-2.0
// Gathering slices by index, and the gradient: the public functions and their problem. Maths: gather_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/gather/gather_math.h"

namespace minidnn {

template <> struct Family<GatherProblem> {
  using Args = GatherArgs;
  static constexpr const char* name = "gather";
  static std::string text(const GatherProblem&);
  static Args scratch(const GatherProblem&, Scratch&);
  static const Engines<GatherProblem>& cpu_engines();
  static const Engines<GatherProblem>& cuda_engines();
};

// index: int32 or int64 of any shape; its dimensions replace x's `axis` in the result's shape.
Tensor gather(const Tensor& x, const Tensor& index, int64_t axis, const Call&);
Tensor gather_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, const Call&);

// For engines: the problem as to[outer][index][span] = from[outer][row][span]; for backward with the two sides
// exchanged.
struct GatherRows {
  int64_t outer = 1, rows = 1, indices = 1, span = 1;  // span: the number of contiguous elements
};
// Returns "", or why there is no such form: all tensors must be row-major.
std::string gather_rows(const GatherProblem&, GatherRows&);
double gather_bytes(const GatherProblem&);
size_t gather_order_bytes(const GatherProblem&);
GatherOrder gather_order(const GatherProblem&, void* workspace);
// For the CPU: sorts the indices, in a workspace of gather_cpu_bytes(). Each index is read only once, since another
// thread may write it meanwhile.
size_t gather_cpu_bytes(const GatherProblem&);
GatherOrder sort_indices(const GatherProblem&, const GatherArgs&, void* workspace);

}  // namespace minidnn
