// SPDX-License-Identifier: Apache-2.0
// Convolution forward and its three gradients (of the data, the filter and the bias): the public functions, their
// checks and the type of their problem (shapes, strides, dtypes, options). conv_math.h has the arithmetic of the direct
// engines. im2col.h computes a convolution as a matrix product.
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
  // `stride`, `dilation` and `padding` each have one value for all spatial dimensions, or one value per dimension.
  std::vector<int64_t> stride{1}, dilation{1};
  std::vector<Sides> padding{{0, 0}};
  int64_t groups = 1;
  bool flip = false;  // true for mode "convolution" (reversed window), false for mode "cross_correlation"
};
// Returns whether `mode` is "convolution" and not "cross_correlation". Throws ShapeError if it is neither.
bool conv_flips(const std::string& mode, const char* call);

// Returns y [N, K, ...] in the memory layout (channels-first or channels-last) that x prefers. `bias` [K] and
// `residual` (of y's shape) are optional. `out` may be the same tensor as `residual`. The activation uses its default
// alpha.
Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                    const std::optional<Tensor>& residual, const ConvAttributes&, Activation, const Call&);
// conv_forward_statistics() does the same as conv_forward(). It also returns the sum of y and the sum of y^2 of each
// channel.
struct ConvStatistics {
  Tensor y, sum, sum_of_squares;
};
ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                                       const std::optional<Tensor>& residual, const ConvAttributes&, Activation,
                                       const Call&);
// Returns dx of shape `x_shape`, in the memory layout (channels-first or channels-last) that dy prefers.
Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes&, const Call&);
// Returns dw of shape `w_shape`. dw is channels-last if x prefers that layout, else row-major.
Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes&,
                            const Call&);
// Returns db [K]: for each channel, the sum of dy over all other dimensions.
Tensor conv_backward_bias(const Tensor& dy, const Call&);

// For engines. operand_dtype: the dtype of the tensors that a convolution reads, including the bias. out_dtype: the
// dtype of the result and of the residual.
DType operand_dtype(const ConvProblem&);
DType out_dtype(const ConvProblem&);
// Calls f(Type<T>, Type<Y>), where T is the C++ type of the operands and Y that of the result.
template <class F> void with_conv_types(const ConvProblem& p, F&& f) {
  with_product_types(operand_dtype(p), out_dtype(p), std::forward<F>(f));
}

// The bytes that a convolution moves and its FLOP, for the time estimates of engines of CPU and GPU. Window elements
// that fall on padding count as FLOP, too.
double conv_bytes(const ConvProblem&);
double conv_flop(const ConvProblem&);
DType statistics_dtype(const ConvProblem&);  // dtype of the sums that conv_forward_statistics() returns

}  // namespace minidnn
