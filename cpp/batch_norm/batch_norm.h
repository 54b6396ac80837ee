// SPDX-License-Identifier: Apache-2.0
// Batch normalization: the public functions, their checks, and BatchNormProblem, the struct that describes a call. Each
// channel has its own mean and variance. With per_activation, each position of a sample has its own mean and variance.
// Layer, group and instance norm are in cpp/layer_norm. The formulas are in batch_norm_math.h.
#pragma once
#include "cpp/batch_norm/batch_norm_math.h"
#include "cpp/engine/op.h"

namespace minidnn {

template <>
struct Family<BatchNormProblem> {
  using Args = BatchNormArgs;
  static constexpr const char* name = "batch_norm";
  static std::string text(const BatchNormProblem&);
  static void ports(const BatchNormProblem&, Args&, Ports&);
  static const Engines<BatchNormProblem>& cpu_engines();
  static const Engines<BatchNormProblem>& cuda_engines();
};

// x is [N, C, spatial...] with 2 to 5 dimensions. Parameters and statistics are float64 if x is float64, else float32.
// Without per_activation, they have the shape [C], and statistics are taken over N and the spatial dimensions. With
// per_activation, they have the shape of one sample, and statistics are taken over N.
struct BatchNormTraining {
  Tensor y, saved_mean, saved_inv_std;
};
// Options of a forward call: y = max(0, batch norm + residual). Both the relu and the residual are optional. The
// residual has the shape and dtype of x, and any strides.
struct BatchNormFusion {
  bool relu = false;
  std::optional<Tensor> residual{};
};
// Options of a backward call. If relu is set, `y` must be the result of the forward call. If dresidual is set, the call
// also returns the gradient of the residual. It is dy, except that with relu it is 0 where y <= 0.
struct BatchNormBackwardFusion {
  bool relu = false;
  std::optional<Tensor> y{};
  bool dresidual = false;
};
struct BatchNormAttributes {
  double eps = 1e-5;
  bool per_activation = false;
};
// The running statistics of batch norm. A call that updates them in place gets both tensors; any other call gets
// neither.
struct BatchNormRunning {
  std::optional<Tensor> mean{}, var{};
  // momentum is the weight of the new batch: running = (1 - momentum) * running + momentum * batch.
  double momentum = 0.1;
};
BatchNormTraining batch_norm_forward_training(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                              const BatchNormRunning&, const BatchNormAttributes&,
                                              const BatchNormFusion&, const Call& call);
// `out` may be the same tensor as x or the residual.
Tensor batch_norm_forward_inference(const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean,
                                    const Tensor& var, const BatchNormAttributes&, const BatchNormFusion&,
                                    const Call& call);
struct BatchNormBackward {
  Tensor dx, dscale, dbias;
  std::optional<Tensor> dresidual;
};
BatchNormBackward batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& saved_mean,
                                      const Tensor& saved_inv_std, bool per_activation, const BatchNormBackwardFusion&,
                                      const Call& call);

// Returns nested loops over the dimensions `dims` of a tensor. shape[i] is the size of loop i, and steps[i] its stride
// in each tensor of the call.
NormSpace norm_space(const std::vector<int64_t>& shape, const std::vector<NormOffsets>& steps, std::vector<int> dims);
// Functions that engines call. norm_spaces() returns the loops over the tensors of a call. norm_bytes() and norm_flop()
// return the bytes and FLOP of a call, from which its time is estimated.
NormSpaces norm_spaces(const BatchNormProblem&);
double norm_bytes(const BatchNormProblem&);
double norm_flop(const BatchNormProblem&);

}  // namespace minidnn
