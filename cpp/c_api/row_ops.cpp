// SPDX-License-Identifier: Apache-2.0
// The C functions that compute statistics of rows or channels: softmax, cross-entropy, batch norm, and layer, RMS,
// group and instance norm.
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/c_api/arguments.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/loss/loss.h"
#include "cpp/softmax/softmax.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

CrossEntropy cross_entropy(const Arguments& a, const minidnnCrossEntropyOptions_t& o) {
  return {o.axis, o.ignore_index, o.label_smoothing, a.present("options->reduction", o.reduction)};
}

// The names of a norm: its kind, and the functions in error messages.
struct NormNames {
  const char *kind, *forward, *backward;
};
const NormNames& names_of(const Arguments& a, minidnnNorm_t norm) {
  static constexpr NormNames all[] = {{"layer", "layer_norm_forward", "layer_norm_backward"},
                                      {"rms", "rms_norm_forward", "rms_norm_backward"},
                                      {"group", "group_norm_forward", "group_norm_backward"},
                                      {"instance", "instance_norm_forward", "instance_norm_backward"}};
  MINIDNN_CHECK(InvalidArgument, norm >= 0 && norm < minidnnNorm_t(std::size(all)), a.name(),
                ": options->norm must be a constant of minidnnNorm_t, from 0 to 3; got ", norm);
  return all[norm];
}
RowNormKind kind_of(const char* call, const char* kind, const minidnnNormOptions_t& o) {
  return row_norm_kind(call, kind, o.norm == MINIDNN_GROUP_NORM ? o.groups : o.axis);
}

}  // namespace

minidnnStatus_t minidnnSoftmaxForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t mask,
                                      const minidnnSoftmaxOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnSoftmaxOptions_t>(options, MINIDNN_SOFTMAX_OPTIONS_INIT);
    Result result = a.result("y", y);
    result.set(softmax_forward(a.tensor("x", x), o.axis, o.log != 0, o.scale, a.optional(mask),
                               call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnSoftmaxBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t y,
                                       const minidnnSoftmaxOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnSoftmaxOptions_t>(options, MINIDNN_SOFTMAX_OPTIONS_INIT);
    Result result = a.result("dx", dx);
    result.set(softmax_backward(a.tensor("dy", dy), a.tensor("y", y), o.axis, o.log != 0, o.scale,
                                call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnCrossEntropyForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t target,
                                           const minidnnCrossEntropyOptions_t* options, minidnnTensor_t* loss,
                                           minidnnTensor_t* lse) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnCrossEntropyOptions_t>(options, MINIDNN_CROSS_ENTROPY_OPTIONS_INIT);
    Result losses = a.new_result("loss", loss);
    Result sums = a.new_result("lse", lse);
    auto [value, sum] = cross_entropy_forward(a.tensor("x", x), a.tensor("target", target), cross_entropy(a, o),
                                              call_of(handle, o.algo));
    losses.set(std::move(value));
    sums.set(std::move(sum));
  });
}

minidnnStatus_t minidnnCrossEntropyBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                            minidnnTensor_t target, minidnnTensor_t lse,
                                            const minidnnCrossEntropyOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnCrossEntropyOptions_t>(options, MINIDNN_CROSS_ENTROPY_OPTIONS_INIT);
    Result result = a.result("dx", dx);
    result.set(cross_entropy_backward(a.tensor("dy", dy), a.tensor("x", x), a.tensor("target", target),
                                      a.tensor("lse", lse), cross_entropy(a, o),
                                      call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnBatchNormForwardTraining(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t scale,
                                                minidnnTensor_t bias, const minidnnBatchNormOptions_t* options,
                                                minidnnTensor_t* y, minidnnTensor_t* saved_mean,
                                                minidnnTensor_t* saved_inv_std) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnBatchNormOptions_t>(options, MINIDNN_BATCH_NORM_OPTIONS_INIT);
    Result result = a.new_result("y", y);
    Result mean = a.new_result("saved_mean", saved_mean);
    Result inv_std = a.new_result("saved_inv_std", saved_inv_std);
    BatchNormTraining r = batch_norm_forward_training(
        a.tensor("x", x), a.tensor("scale", scale), a.tensor("bias", bias),
        {a.optional(o.running_mean), a.optional(o.running_var), o.momentum}, {o.eps, o.per_activation != 0},
        {o.relu != 0, a.optional(o.residual)}, call_of(handle, o.algo));
    result.set(std::move(r.y));
    mean.set(std::move(r.saved_mean));
    inv_std.set(std::move(r.saved_inv_std));
  });
}

minidnnStatus_t minidnnBatchNormForwardInference(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t scale,
                                                 minidnnTensor_t bias, minidnnTensor_t mean, minidnnTensor_t var,
                                                 const minidnnBatchNormOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnBatchNormOptions_t>(options, MINIDNN_BATCH_NORM_OPTIONS_INIT);
    Result result = a.result("y", y);
    result.set(batch_norm_forward_inference(a.tensor("x", x), a.tensor("scale", scale), a.tensor("bias", bias),
                                            a.tensor("mean", mean), a.tensor("var", var),
                                            {o.eps, o.per_activation != 0}, {o.relu != 0, a.optional(o.residual)},
                                            call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnBatchNormBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                         minidnnTensor_t scale, minidnnTensor_t saved_mean,
                                         minidnnTensor_t saved_inv_std, const minidnnBatchNormOptions_t* options,
                                         minidnnNormGradients_t* gradients) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnBatchNormOptions_t>(options, MINIDNN_BATCH_NORM_OPTIONS_INIT);
    a.present("gradients", gradients);
    Result dx = a.new_result("dx", &gradients->dx);
    Result dscale = a.new_result("dscale", &gradients->dscale);
    Result dbias = a.new_result("dbias", &gradients->dbias);
    Result dresidual = a.new_result("dresidual", &gradients->dresidual);
    BatchNormBackward r = batch_norm_backward(
        a.tensor("dy", dy), a.tensor("x", x), a.tensor("scale", scale), a.tensor("saved_mean", saved_mean),
        a.tensor("saved_inv_std", saved_inv_std), o.per_activation != 0,
        {o.relu != 0, a.optional(o.y), o.dresidual != 0}, call_of(handle, o.algo));
    dx.set(std::move(r.dx));
    dscale.set(std::move(r.dscale));
    dbias.set(std::move(r.dbias));
    if (r.dresidual) dresidual.set(std::move(*r.dresidual));
  });
}

minidnnStatus_t minidnnNormForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t scale,
                                   minidnnTensor_t bias, const minidnnNormOptions_t* options, minidnnTensor_t* y,
                                   minidnnTensor_t* mean, minidnnTensor_t* inv_std) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnNormOptions_t>(options, MINIDNN_NORM_OPTIONS_INIT);
    const NormNames& names = names_of(a, o.norm);
    Result result = a.new_result("y", y);
    std::optional<Result> means;
    if (o.norm != MINIDNN_RMS_NORM) means = a.new_result("mean", mean);
    Result deviations = a.new_result("inv_std", inv_std);
    LayerNormForward r = layer_norm_forward(names.forward, kind_of(names.forward, names.kind, o), a.tensor("x", x),
                                            a.optional(scale), a.optional(bias), o.eps, call_of(handle, o.algo));
    result.set(std::move(r.y));
    if (means) means->set(std::move(*r.mean));
    deviations.set(std::move(r.inv_std));
  });
}

minidnnStatus_t minidnnNormBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                    minidnnTensor_t scale, minidnnTensor_t mean, minidnnTensor_t inv_std,
                                    const minidnnNormOptions_t* options, minidnnNormGradients_t* gradients) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnNormOptions_t>(options, MINIDNN_NORM_OPTIONS_INIT);
    const NormNames& names = names_of(a, o.norm);
    a.present("gradients", gradients);
    Result dx = a.new_result("dx", &gradients->dx);
    Result dscale = a.new_result("dscale", &gradients->dscale);
    Result dbias = a.new_result("dbias", &gradients->dbias);
    if (o.norm != MINIDNN_RMS_NORM) a.tensor("mean", mean);
    LayerNormBackward r = layer_norm_backward(names.backward, kind_of(names.backward, names.kind, o),
                                              a.tensor("dy", dy), a.tensor("x", x), a.optional(scale), a.optional(mean),
                                              a.tensor("inv_std", inv_std), call_of(handle, o.algo));
    dx.set(std::move(r.dx));
    dscale.set(std::move(r.dscale));
    if (r.dbias) dbias.set(std::move(*r.dbias));
  });
}
