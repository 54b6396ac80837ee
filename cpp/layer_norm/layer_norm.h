// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, group and instance norm: the public functions and their problem. Maths: layer_norm_math.h.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/spatial.h"
#include "cpp/layer_norm/layer_norm_math.h"

namespace minidnn {

template <> struct Family<LayerNormProblem> {
  using Args = LayerNormArgs;
  static constexpr const char* name = "layer_norm";
  static std::string text(const LayerNormProblem&);
  static Args scratch(const LayerNormProblem&, Scratch&);
  static const Engines<LayerNormProblem>& cpu_engines();
  static const Engines<LayerNormProblem>& cuda_engines();
};

// The kind of norm and its number. Layer and RMS norm: the first dimension of a row. Group norm: the number of groups;
// 0 means one group per channel, which is instance norm.
struct RowNormKind {
  RowNorm kind;
  int64_t axis_or_groups;
};
using OptionalTensor = std::optional<Tensor>;

// Parameters are float32 (float64 for float64), with the shape of a row (layer, RMS) or one per channel (group). There
// is one statistic per row.
struct LayerNormForward {
  Tensor y;
  OptionalTensor mean;  // absent for RMS norm
  Tensor inv_std;
};
LayerNormForward layer_norm_forward(const char* call, RowNormKind, const Tensor& x, const OptionalTensor& scale,
                                    const OptionalTensor& bias, double eps, const Call&);
struct LayerNormBackward {
  Tensor dx, dscale;
  OptionalTensor dbias;  // absent for RMS norm
};
LayerNormBackward layer_norm_backward(const char* call, RowNormKind, const Tensor& dy, const Tensor& x,
                                      const OptionalTensor& scale, const OptionalTensor& mean, const Tensor& inv_std,
                                      const Call&);

// For engines.
LayerNormSpaces row_norm_spaces(const LayerNormProblem&);
double row_norm_bytes(const LayerNormProblem&);
double row_norm_flop(const LayerNormProblem&);
// Adds up sums[samples][channels][2] over the samples, and writes dscale and dbias.
void sum_parameter_gradients(const float* sums, int64_t samples, int64_t channels, const LayerNormArgs&);

}  // namespace minidnn
