// SPDX-License-Identifier: Apache-2.0
// Gathering slices by index, and the gradient: the public functions, and the struct that describes a call. The formulas
// are in gather_math.h.
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

// `index` has any shape and the dtype int32 or int64. In the shape of the result, the dimensions of `index` replace
// dimension `axis` of x.
Tensor gather(const Tensor& x, const Tensor& index, int64_t axis, const Call&);
Tensor gather_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, const Call&);

// For engines: the call as to[outer][index][span] = from[outer][row][span], where `row` is the value of the index. The
// gradient is to[outer][row][span] = the sum of from[outer][index][span] over the indices of that row.
struct GatherRows {
  int64_t outer = 1, rows = 1, indices = 1, span = 1;  // span: the number of contiguous elements of a slice
};
// Returns "" if the call has the form above, else the reason. All tensors must be row-major.
std::string gather_rows(const GatherProblem&, GatherRows&);
double gather_bytes(const GatherProblem&);
size_t gather_order_bytes(const GatherProblem&);
GatherOrder gather_order(const GatherProblem&, void* workspace);
// For the CPU: sorts the indices by row, in a workspace of gather_cpu_bytes(). The function reads each index only once,
// because another thread may write to the tensor of indices at the same time.
size_t gather_cpu_bytes(const GatherProblem&);
GatherOrder sort_indices(const GatherProblem&, const GatherArgs&, void* workspace);

}  // namespace minidnn
