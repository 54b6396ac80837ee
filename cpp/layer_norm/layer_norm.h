// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, group and instance norm: the public functions, and the struct that describes a call. The formulas are in
// layer_norm_math.h.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/spatial.h"
#include "cpp/layer_norm/layer_norm_math.h"

namespace minidnn {

template <> struct Family<LayerNormProblem> {
  using Args = LayerNormArgs;
  static constexpr const char* name = "layer_norm";
  static std::string text(const LayerNormProblem&);
  static void ports(const LayerNormProblem&, Args&, Ports&);
  static const Engines<LayerNormProblem>& cpu_engines();
  static const Engines<LayerNormProblem>& cuda_engines();
};

// The kind of norm, and a number: the first dimension of a row for layer and RMS norm, the number of groups for group
// norm, 0 for instance norm.
struct RowNormKind {
  RowNorm kind;
  int64_t axis_or_groups;
};
// `kind` is "layer", "rms", "group" or "instance". Throws ShapeError if the number of groups is below 1.
RowNormKind row_norm_kind(const std::string& call, const std::string& kind, int64_t axis_or_groups);
using OptionalTensor = std::optional<Tensor>;

// Parameters (scale, bias) and statistics (mean, inv_std) are float64 if x is float64, else float32. In layer and RMS
// norm, parameters have the shape of a row. In group norm, they have one element per channel. Statistics have one
// element per row. In group norm, a row is one group of channels of one sample.
struct LayerNormForward {
  Tensor y;
  OptionalTensor mean;  // RMS norm has no mean
  Tensor inv_std;
};
LayerNormForward layer_norm_forward(const char* call, RowNormKind, const Tensor& x, const OptionalTensor& scale,
                                    const OptionalTensor& bias, double eps, const Call&);
struct LayerNormBackward {
  Tensor dx, dscale;
  OptionalTensor dbias;  // RMS norm has no dbias
};
LayerNormBackward layer_norm_backward(const char* call, RowNormKind, const Tensor& dy, const Tensor& x,
                                      const OptionalTensor& scale, const OptionalTensor& mean, const Tensor& inv_std,
                                      const Call&);

// Functions that describe a call for engines: its loops over the tensors, its bytes, and its FLOP.
LayerNormSpaces row_norm_spaces(const LayerNormProblem&);
double row_norm_bytes(const LayerNormProblem&);
double row_norm_flop(const LayerNormProblem&);
// For engines of the CPU that keep a row of n float32 elements in memory. row_statistics() computes the statistics of
// layer norm (`centered`) or RMS norm. normalize_span() computes y = (x - mean) * inv_std * scale + bias for any n
// elements of the row. `scale` and `bias` may be null. `y` may be x.
NormStatistics row_statistics(const float* x, int64_t n, double eps, bool centered);
void normalize_span(const float* x, const NormStatistics&, const float* scale, const float* bias, float* y, int64_t n);
// Computes dscale and dbias from sums[samples][channels][2] by adding over the samples. Acc is float or double.
template <class Acc>
void sum_parameter_gradients(const Acc* sums, int64_t samples, int64_t channels, const LayerNormArgs&);

}  // namespace minidnn
