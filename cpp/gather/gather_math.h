// SPDX-License-Identifier: Apache-2.0
// The formulas of gather, shared by CPU and CUDA. Forward: y has those slices of x along an axis that `index` selects.
// Gradient: each slice of dx is the sum of all slices of dy whose index selects it.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"

namespace minidnn {

enum class GatherDirection : int64_t { forward, backward };

struct GatherProblem {
  GatherDirection direction{};
  int64_t axis = 0;
  TensorDesc x, index,
      // Descriptors of the tensors of a gather. y has the shape of x with dimension `axis` replaced by the dimensions
      // of `index`. For the gradient, `x` describes dx and `y` describes dy. `index` is int32 or int64.
      y;
  // The number of bytes to which x and y are aligned in memory: at most 16, and always 16 on a CPU.
  int64_t alignment = 16;

  MINIDNN_HD int64_t rows() const { return x.shape[axis]; }
};

struct GatherArgs {
  // The input of a gather: x in the forward direction, dy for the gradient.
  const void* from = nullptr;
  const void* index = nullptr;
  // The result of a gather: y in the forward direction, dx for the gradient.
  void* to = nullptr;
};

// Returns the row of x that index[at] selects, or -1 if the index is out of range. A negative index counts from the
// end.
MINIDNN_HD int64_t gather_row_at(const GatherProblem& p, const void* index, int64_t at) {
  int64_t row = p.index.dtype == DType::int32 ? int64_t(static_cast<const int32_t*>(index)[at])
                                              : static_cast<const int64_t*>(index)[at];
  if (row < 0) row += p.rows();
  return 0 <= row && row < p.rows() ? row : -1;
}
// Returns the row of x that element k of `index` selects, or -1 if the index is out of range. Elements are counted in
// row-major order.
MINIDNN_HD int64_t gather_row(const GatherProblem& p, const void* index, int64_t k) {
  return gather_row_at(p, index, p.index.offset_of(k));
}

// Computes element `linear` of y, counted in row-major order. It is 0 if the index is out of range. To report an error,
// the CPU would have to wait for the GPU.
template <class T> MINIDNN_HD void gather_element(const GatherProblem& p, const GatherArgs& a, int64_t linear) {
  int64_t x_at = 0, y_at = 0, k = 0, k_step = 1;
  for (int d = int(p.y.rank) - 1; d >= 0; --d) {
    const int64_t i = linear % p.y.shape[d];
    linear /= p.y.shape[d];
    y_at += i * p.y.stride[d];
    const int64_t of_index = d - p.axis;
    if (of_index < 0) x_at += i * p.x.stride[d];
    else if (of_index >= p.index.rank) x_at += i * p.x.stride[d - p.index.rank + 1];
    else {
      k += i * k_step;
      k_step *= p.y.shape[d];
    }
  }
  const int64_t row = gather_row(p, a.index, k);
  static_cast<T*>(a.to)[y_at] = row < 0 ? T(0) : static_cast<const T*>(a.from)[x_at + row * p.x.stride[p.axis]];
}

// The positions of all indices, sorted by the row of x that they select. Row r has the positions order[starts[r]] to
// order[starts[r + 1] - 1]. Gradients are summed in this order, so they do not depend on the number of threads.
struct GatherOrder {
  // where the positions for each row begin in `order`; rows() + 1 elements
  int32_t* starts;
  // positions in the tensor of indices, counted in row-major order
  int32_t* order;
};

template <class T>
MINIDNN_HD void gather_sum(const GatherProblem& p, const GatherArgs& a, const GatherOrder& o, int64_t linear) {
  int64_t dx_at = 0, dy_at = 0, row = 0;
  for (int d = int(p.x.rank) - 1; d >= 0; --d) {
    const int64_t i = linear % p.x.shape[d];
    linear /= p.x.shape[d];
    dx_at += i * p.x.stride[d];
    if (d < p.axis) dy_at += i * p.y.stride[d];
    else if (d > p.axis) dy_at += i * p.y.stride[d + p.index.rank - 1];
    else row = i;
  }
  Accumulator<T> sum = 0;
  for (int32_t j = o.starts[row]; j < o.starts[row + 1]; ++j) {
    int64_t k = o.order[j], at = dy_at;
    for (int d = int(p.axis + p.index.rank) - 1; d >= p.axis; --d) {
      at += k % p.y.shape[d] * p.y.stride[d];
      k /= p.y.shape[d];
    }
    sum += Accumulator<T>(static_cast<const T*>(a.from)[at]);
  }
  static_cast<T*>(a.to)[dx_at] = T(sum);
}

}  // namespace minidnn
