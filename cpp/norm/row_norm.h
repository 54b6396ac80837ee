// SPDX-License-Identifier: Apache-2.0
// Layer, RMS, group and instance norm: the public functions and their problem. Maths: row_norm_math.h.
#pragma once
#include "cpp/norm/norm.h"
#include "cpp/norm/row_norm_math.h"

namespace minidnn {

template <> struct Family<RowNormProblem> {
  using Args = RowNormArgs;
  static constexpr const char* name = "norm";
  static std::string text(const RowNormProblem&);
  static Args scratch(const RowNormProblem&, Scratch&);
  static const Engines<RowNormProblem>& cpu_engines();
  static const Engines<RowNormProblem>& cuda_engines();
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
struct RowNormForward {
  Tensor y;
  OptionalTensor mean;  // absent for RMS norm
  Tensor inv_std;
};
RowNormForward row_norm_forward(const char* call, RowNormKind, const Tensor& x, const OptionalTensor& scale,
                                const OptionalTensor& bias, double eps, const Call&);
struct RowNormBackward {
  Tensor dx, dscale;
  OptionalTensor dbias;  // absent for RMS norm
};
RowNormBackward row_norm_backward(const char* call, RowNormKind, const Tensor& dy, const Tensor& x,
                                  const OptionalTensor& scale, const OptionalTensor& mean, const Tensor& inv_std,
                                  const Call&);

// For engines. plane_of: the elements of one channel in one sample. channels_in_order: samples are contiguous, and so
// is each channel's plane in them (NCHW). channels_innermost: samples are contiguous, and so are the channels of a
// pixel (NHWC).
int64_t plane_of(const TensorDesc& x);
bool channels_in_order(const TensorDesc& x);
bool channels_innermost(const TensorDesc& x);
RowNormSpaces row_norm_spaces(const RowNormProblem&);
double row_norm_bytes(const RowNormProblem&);
double row_norm_flop(const RowNormProblem&);
const Engine<RowNormProblem>& row_norm_rows();     // row_norm_cpu.cpp
const Engine<RowNormProblem>& row_norm_columns();  // row_norm_columns.cpp
// Adds up sums[samples][channels][2] over the samples, and writes dscale and dbias.
void row_norm_join(const float* sums, int64_t samples, int64_t channels, const RowNormArgs&);

}  // namespace minidnn
