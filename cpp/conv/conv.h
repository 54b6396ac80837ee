// SPDX-License-Identifier: Apache-2.0
// Convolution forward and its three gradients: the public functions, their checks and their problem.
// Arithmetic of the direct engines: conv_math.h. The lowered form, a matrix product: lowering.h.
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
  std::vector<int64_t> stride{1}, dilation{1};  // one for all spatial dimensions, or one for each; so is the padding
  std::vector<Sides> padding{{0, 0}};
  int64_t groups = 1;
  bool flip = false;  // mode "convolution"
};
bool conv_flips(const std::string& mode, const char* call);  // ShapeError unless "cross_correlation" or "convolution"

// y [N, K, ...] in the layout x prefers. `bias` [K] and `residual`, of y's shape, may be absent, and `out` may be the
// residual; the activation has its default alpha.
Tensor conv_forward(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                    const std::optional<Tensor>& residual, const ConvAttributes&, Activation, const Call&);
// The same, with the sums of y and of its squares over all but its channels.
struct ConvStatistics {
  Tensor y, sum, sum_of_squares;
};
ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                                       const std::optional<Tensor>& residual, const ConvAttributes&, Activation,
                                       const Call&);
// dx of that shape, in the layout dy prefers.
Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvAttributes&, const Call&);
// dw of that shape, channels last if x prefers that, else row-major.
Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvAttributes&,
                            const Call&);
// db [K], the sum of dy over all but its channels.
Tensor conv_backward_bias(const Tensor& dy, const Call&);

// For engines: the dtype of what is read, bias included, and of what is written, y's residual included.
DType operand_dtype(const ConvProblem&);
DType out_dtype(const ConvProblem&);
// Calls f(Type<T>, Type<Y>) for these two.
template <class F> void with_conv_types(const ConvProblem& p, F&& f) {
  with_product_types(operand_dtype(p), out_dtype(p), std::forward<F>(f));
}

// Bytes and flop for estimates, shared by the engines of both devices. Taps in the padding are counted as if they were
// not.
double conv_bytes(const ConvProblem&);
double conv_flop(const ConvProblem&);
const Engine<ConvProblem>& conv_tiles();         // conv_tiles.cpp
const Engine<ConvProblem>& conv_filter_tiles();  // conv_filter_tiles.cpp
const Engine<ConvProblem>& conv_filter_taps();   // conv_filter_taps.cpp
const Engine<ConvProblem>& conv_groups();        // conv_groups.cpp
const Engine<ConvProblem>& conv_planes_cpu();    // conv_planes.cpp
const Engine<ConvProblem>& conv_winograd_cpu();  // conv_winograd.cpp
// conv_sums.cpp, for both devices:
const Engine<ConvProblem>& conv_reduce(bool cuda);
const Engine<ConvStatisticsProblem>& conv_then_reduce(bool cuda);

DType statistics_dtype(const ConvProblem&);  // of a ConvStatisticsProblem's sums

}  // namespace minidnn
