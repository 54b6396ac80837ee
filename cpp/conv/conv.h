// SPDX-License-Identifier: Apache-2.0
// Convolution forward and its three gradients: the public functions, their checks and their problem. conv_math.h has
// the arithmetic of the direct engines, and im2col.h computes a convolution as a matrix product.
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
  static Args scratch(const ConvProblem&, Scratch&);
  static const Engines<ConvProblem>& cpu_engines();
  static const Engines<ConvProblem>& cuda_engines();
};

template <> struct Family<ConvStatisticsProblem> {
  using Args = ConvStatisticsArgs;
  static constexpr const char* name = "conv";
  static std::string text(const ConvStatisticsProblem&);
  static Args scratch(const ConvStatisticsProblem&, Scratch&);
  static const Engines<ConvStatisticsProblem>& cpu_engines();
  static const Engines<ConvStatisticsProblem>& cuda_engines();
};

struct ConvAttributes {
  // Each has one value for all spatial dimensions, or one value per dimension.
  std::vector<int64_t> stride{1}, dilation{1};
  std::vector<Sides> padding{{0, 0}};
  int64_t groups = 1;
  bool flip = false;  // mode "convolution"
};
bool conv_flips(const std::string& mode, const char* call);  // ShapeError unless "cross_correlation" or "convolution"

// Returns y [N, K, ...] in the layout that x prefers. `bias` [K] and `residual` (of y's shape) are optional. `out` may
// be the residual. The activation uses its default alpha.
Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                    const std::optional<Tensor>& residual, const ConvAttributes&, Activation, const Call&);
// Like conv_forward(); also returns, for each channel, the sums of y and of y^2 over all other dimensions.
struct ConvStatistics {
  Tensor y, sum, sum_of_squares;
};
ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                                       const std::optional<Tensor>& residual, const ConvAttributes&, Activation,
                                       const Call&);
// Returns dx of shape `x_shape`, in the layout that dy prefers.
Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes&, const Call&);
// Returns dw of shape `w_shape`: channels-last if x prefers that, else row-major.
Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes&,
                            const Call&);
// Returns db [K]: the sum of dy over all dimensions but the channels.
Tensor conv_backward_bias(const Tensor& dy, const Call&);

// For engines: the dtype of all that is read, including the bias, and the dtype of the result and of the residual.
DType operand_dtype(const ConvProblem&);
DType out_dtype(const ConvProblem&);
// Calls f(Type<T>, Type<Y>), T the operand dtype and Y the output dtype.
template <class F> void with_conv_types(const ConvProblem& p, F&& f) {
  with_product_types(operand_dtype(p), out_dtype(p), std::forward<F>(f));
}

// Bytes moved and flop, for the estimates of the engines of both devices. Taps on padding count like all others.
double conv_bytes(const ConvProblem&);
double conv_flop(const ConvProblem&);
DType statistics_dtype(const ConvProblem&);  // dtype of a ConvStatisticsProblem's sums

}  // namespace minidnn
