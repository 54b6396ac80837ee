// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax along an axis: the public functions, their checks, and the struct that describes a call. The
// formulas are in softmax_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/softmax/softmax_math.h"

namespace minidnn {

template <>
struct Family<SoftmaxProblem> {
  using Args = SoftmaxArgs;
  static constexpr const char* name = "softmax";
  static std::string text(const SoftmaxProblem&);
  static void ports(const SoftmaxProblem&, Args&, Ports&);
  static const Engines<SoftmaxProblem>& cpu_engines();
  static const Engines<SoftmaxProblem>& cuda_engines();
};

// Returns softmax(scale * x + mask) along an axis. A boolean mask is not added: where it is false, the element of scale
// * x is replaced by -inf. The mask is broadcast to x. A negative `axis` counts from the end. `out` may be the same
// tensor as x.
Tensor softmax_forward(const Tensor& x, int64_t axis, bool log, double scale, const std::optional<Tensor>& mask,
                       const Call& call);
// Returns the gradient of x. `y` is the result of softmax_forward for the same axis, `log` and scale. `out` may be the
// same tensor as dy or y.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log, double scale, const Call& call);

// Returns the dimensions of x without the axis that have more than one element, the innermost in memory first.
std::vector<int> outer_dims(const SoftmaxProblem&);
// Returns the given dimensions of a tensor. Dimensions with a common stride are joined.
RowLayout row_layout(const SoftmaxProblem&, const TensorDesc&, std::span<const int> dims);

// For engines of the CPU that keep a row of n float32 elements in memory. row_exponentials() computes exp(scale * x -
// largest), where `largest` is the maximum of scale * x, and their sum, which is NaN if the row has a NaN or +inf, or
// only -inf. It stores the exponentials at `e`, unless `e` is null; `e` may be x.
SoftmaxSums row_exponentials(const float* x, float* e, int64_t n, float scale);
// Computes contiguous rows of at most kLongestShortRow float32 elements, without a mask. `out` may be an input.
void softmax_short_rows(SoftmaxDirection, bool log, const SoftmaxArgs&, int64_t rows, int64_t cols);
// Returns the sum over a row that its gradient needs: of dy for log-softmax, of dy * y for softmax.
float softmax_gradient_sum(const float* y, const float* dy, int64_t n, bool log);
// Computes n elements of the gradient from this sum. `dx` may be y or dy.
void softmax_gradient_span(const float* y, const float* dy, float* dx, int64_t n, bool log, float sum, float scale);

// The bytes and FLOP of a call. CPU and CUDA engines estimate their time from these numbers.
double softmax_bytes(const SoftmaxProblem&);
double softmax_flop(const SoftmaxProblem&);

}  // namespace minidnn
