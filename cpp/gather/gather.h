// SPDX-License-Identifier: Apache-2.0
// Gathering slices of a tensor by index, and its gradient: the public functions, and functions for engines. The
// formulas are in gather_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/gather/gather_math.h"

namespace minidnn {

template <> struct Family<GatherProblem> {
  using Args = GatherArgs;
  static constexpr const char* name = "gather";
  static std::string text(const GatherProblem&);
  static void ports(const GatherProblem&, Args&, Ports&);
  // Throws ShapeError if an index on the CPU is out of range.
  static void check(const GatherProblem&, const Args&);
  static const Engines<GatherProblem>& cpu_engines();
  static const Engines<GatherProblem>& cuda_engines();
};

// Gathers slices of x along dimension `axis`, and computes the gradient. `index` has any shape and the dtype int32 or
// int64. The shape of the result is the shape of x with dimension `axis` replaced by the dimensions of `index`.
Tensor gather(const Tensor& x, const Tensor& index, int64_t axis, const Call&);
Tensor gather_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis, const Call&);

// For engines: a gather of row-major tensors as a copy of spans, which are contiguous elements.
//   Forward:  to[o][i][s] = from[o][index[i]][s]   for all s < span
//   Gradient: to[o][r][s] = sum of from[o][i][s] over all i with index[i] == r
struct GatherRows {
  // the number of contiguous elements per index
  int64_t outer = 1, rows = 1, indices = 1, span = 1;
};
// Describes a gather as a copy of contiguous spans, and returns "". Otherwise returns the reason.
std::string gather_rows(const GatherProblem&, GatherRows&);
double gather_bytes(const GatherProblem&);
size_t gather_order_bytes(const GatherProblem&);
GatherOrder gather_order(const GatherProblem&, void* workspace);
// For the CPU: sorts the indices by the row that they select, in a workspace of gather_cpu_bytes(). The function reads
// each index only once, because another thread may write to the tensor of indices at the same time.
size_t gather_cpu_bytes(const GatherProblem&);
GatherOrder sort_indices(const GatherProblem&, const GatherArgs&, void* workspace);

}  // namespace minidnn
