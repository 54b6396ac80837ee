// SPDX-License-Identifier: Apache-2.0
// The public functions for convolutions: the forward convolution and its gradients with respect to the data, the filter
// and the bias. The file also declares the estimates of bytes and FLOP. conv_math.h defines ConvProblem (shapes,
// strides, dtypes, options) and the arithmetic of the direct engines. im2col.h computes a convolution as a matrix
// product.
#pragma once
#include "cpp/activation/activation.h"
#include "cpp/conv/conv_math.h"
#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"

namespace minidnn {

template <> struct Family<ConvProblem> {
  using Args = ConvArgs;
  static constexpr const char* name = "conv";
  static std::string text(const ConvProblem&);
  static void ports(const ConvProblem&, Args&, Ports&);
  static const Engines<ConvProblem>& cpu_engines();
  static const Engines<ConvProblem>& cuda_engines();
};

template <> struct Family<ConvStatisticsProblem> {
  using Args = ConvStatisticsArgs;
  static constexpr const char* name = "conv";
  static std::string text(const ConvStatisticsProblem&);
  static void ports(const ConvStatisticsProblem&, Args&, Ports&);
  static const Engines<ConvStatisticsProblem>& cpu_engines();
  static const Engines<ConvStatisticsProblem>& cuda_engines();
};

struct ConvAttributes {
  // `stride`, `dilation` and `padding` each have one value for all spatial dimensions, or one value per dimension.
  std::vector<int64_t> stride{1}, dilation{1};
  std::vector<Sides> padding{{0, 0}};
  int64_t groups = 1;
  bool flip = false;  // true for mode "convolution" (reversed window), false for mode "cross_correlation"
};
// Returns true if `mode` is "convolution", and false if it is "cross_correlation". Throws ShapeError for any other
// mode.
bool conv_flips(const std::string& mode, const char* call);

// Computes a forward convolution. Returns y [N, K, ...] in the memory layout (channels-first or channels-last) that x
// prefers. `bias` [K] and `residual` (of y's shape) are optional. `out` may be the same tensor as `residual`. The
// activation function uses its default alpha.
Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                    const std::optional<Tensor>& residual, const ConvAttributes&, Activation, const Call&);
// Computes y like conv_forward(), and also two sums per channel: the sum of y and the sum of y^2.
struct ConvStatistics {
  Tensor y, sum, sum_of_squares;
};
ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                                       const std::optional<Tensor>& residual, const ConvAttributes&, Activation,
                                       const Call&);
// Computes the gradient with respect to the data. Returns dx of shape `x_shape`, in the memory layout (channels-first
// or channels-last) that dy prefers.
Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes&, const Call&);
// Computes the gradient with respect to the filter. Returns dw of shape `w_shape`. dw is channels-last if x prefers
// channels-last, and row-major if x prefers channels-first.
Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes&,
                            const Call&);
// Computes the gradient with respect to the bias. Returns db [K]: for each channel, the sum of dy over all other
// dimensions.
Tensor conv_backward_bias(const Tensor& dy, const Call&);

// For engines. operand_dtype() returns the dtype of the tensors that a convolution reads, including the bias.
// out_dtype() returns the dtype of the result and of the residual.
DType operand_dtype(const ConvProblem&);
DType out_dtype(const ConvProblem&);
// Calls f(Type<T>, Type<Y>), where T is the C++ type of the operands of a convolution, and Y is the C++ type of its
// result.
template <class F> void with_conv_types(const ConvProblem& p, F&& f) {
  with_product_types(operand_dtype(p), out_dtype(p), std::forward<F>(f));
}

// conv_bytes() returns the bytes that a convolution moves, and conv_flop() its number of FLOP. CPU and GPU engines
// estimate their time from these. Window elements that fall on padding count as FLOP, too.
double conv_bytes(const ConvProblem&);
double conv_flop(const ConvProblem&);

}  // namespace minidnn
