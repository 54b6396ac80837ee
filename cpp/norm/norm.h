// SPDX-License-Identifier: Apache-2.0
// Batch normalization: the public functions, their checks and their problem. Layer, group and instance norm are other
// ranges of kept dimensions of the same problem. Maths: norm_math.h.
#pragma once
#include "cpp/engine/op.h"
#include "cpp/norm/norm_math.h"

namespace minidnn {

template <>
struct Family<NormProblem> {
  using Args = NormArgs;
  static constexpr const char* name = "norm";
  static std::string text(const NormProblem&);
  static Args scratch(const NormProblem&, Scratch&);
  static const Engines<NormProblem>& cpu_engines();
  static const Engines<NormProblem>& cuda_engines();
};

// x [N, C, spatial...], 2 to 5 dimensions. Parameters and statistics are float32 (float64 for float64): [C], taken over
// N and space, or with per_activation of the shape of one sample, taken over N.
struct BatchNormTraining {
  Tensor y, saved_mean, saved_inv_std;
};
// y = max(0, batch norm + residual), either or both. The residual is like x, of any strides.
struct BatchNormFusion {
  bool relu = false;
  std::optional<Tensor> residual{};
};
// With relu, y is what the forward call returned. dresidual: also the residual's gradient, dy where y > 0.
struct BatchNormBackwardFusion {
  bool relu = false;
  std::optional<Tensor> y{};
  bool dresidual = false;
};
// The running tensors are both given, and updated in place, or both empty.
BatchNormTraining batch_norm_forward_training(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                              const std::optional<Tensor>& running_mean,
                                              const std::optional<Tensor>& running_var, double momentum, double eps,
                                              bool per_activation, const BatchNormFusion&, const Call& call);
// `out` may be x or the residual.
Tensor batch_norm_forward_inference(const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean,
                                    const Tensor& var, double eps, bool per_activation, const BatchNormFusion&,
                                    const Call& call);
struct BatchNormBackward {
  Tensor dx, dscale, dbias;
  std::optional<Tensor> dresidual;
};
BatchNormBackward batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& saved_mean,
                                      const Tensor& saved_inv_std, bool per_activation, const BatchNormBackwardFusion&,
                                      const Call& call);

// The loops over `dims`; steps has the strides of every dimension.
NormSpace norm_space(const std::vector<int64_t>& shape, const std::vector<NormOffsets>& steps, std::vector<int> dims);
// For engines: the loops of a problem, and bytes and flop for estimates.
NormSpaces norm_spaces(const NormProblem&);
double norm_bytes(const NormProblem&);
double norm_flop(const NormProblem&);
const Engine<NormProblem>& norm_streamed();  // norm_cpu.cpp

}  // namespace minidnn
