// SPDX-License-Identifier: Apache-2.0
// The C functions for matrix products, functions of elements, reductions, copies and random numbers.
#include <cmath>

#include "cpp/activation/activation.h"
#include "cpp/c_api/arguments.h"
#include "cpp/gather/gather.h"
#include "cpp/matmul/matmul.h"
#include "cpp/pad/pad.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/random/random.h"
#include "cpp/reduce/reduce.h"
#include "cpp/transform/transform.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

std::optional<double> given(double alpha) {
  if (std::isnan(alpha)) return std::nullopt;
  return alpha;
}

}  // namespace

minidnnStatus_t minidnnActivationForward(minidnnHandle_t handle, const char* mode, minidnnTensor_t x,
                                         const minidnnActivationOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnActivationOptions_t>(options, MINIDNN_ACTIVATION_OPTIONS_INIT);
    Result result = a.result("y", y);
    result.set(activation_forward(a.tensor("x", x),
                                  activation_from(a.present("mode", mode), "activation_forward", "mode"),
                                  given(o.alpha), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnActivationBackward(minidnnHandle_t handle, const char* mode, minidnnTensor_t dy,
                                          minidnnTensor_t x, minidnnTensor_t y,
                                          const minidnnActivationOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnActivationOptions_t>(options, MINIDNN_ACTIVATION_OPTIONS_INIT);
    Result result = a.result("dx", dx);
    result.set(activation_backward(a.tensor("dy", dy), a.tensor("x", x), a.tensor("y", y),
                                   activation_from(a.present("mode", mode), "activation_backward", "mode"),
                                   given(o.alpha), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnMatmul(minidnnHandle_t handle, minidnnTensor_t a_, minidnnTensor_t b, minidnnTensor_t c,
                              minidnnTensor_t bias, const minidnnMatmulOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnMatmulOptions_t>(options, MINIDNN_MATMUL_OPTIONS_INIT);
    Result result = a.result("y", y);
    MatmulOptions m{o.transpose_a != 0, o.transpose_b != 0, o.alpha, o.beta, a.optional(c), a.optional(bias)};
    if (o.activation) m.activation = activation_from(o.activation, "matmul");
    result.set(matmul(a.tensor("a", a_), a.tensor("b", b), m, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnPointwise(minidnnHandle_t handle, const char* op, minidnnTensor_t a_, minidnnTensor_t b,
                                 minidnnTensor_t c, const minidnnOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("y", y);
    const Pointwise function = pointwise_from(a.present("op", op), "pointwise");
    result.set(
        pointwise(function, a.tensor("a", a_), a.optional(b), a.optional(c), call_of(handle, algo, result.out())));
  });
}

minidnnStatus_t minidnnReduce(minidnnHandle_t handle, const char* mode, minidnnTensor_t x,
                              const minidnnReduceOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnReduceOptions_t>(options, MINIDNN_REDUCE_OPTIONS_INIT);
    Result result = a.result("y", y);
    std::optional<std::vector<int64_t>> axes;
    if (o.axes) {
      const auto listed = a.sizes("options->axes", o.axis_count, o.axes);
      axes.emplace(listed.begin(), listed.end());
    }
    result.set(reduce(a.tensor("x", x), a.present("mode", mode), axes, o.keepdims != 0,
                      call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnTransform(minidnnHandle_t handle, minidnnTensor_t x, const minidnnTransformOptions_t* options,
                                 minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnTransformOptions_t>(options, MINIDNN_TRANSFORM_OPTIONS_INIT);
    Result result = a.result("y", y);
    const Tensor& from = a.tensor("x", x);
    std::optional<DType> dtype;
    if (o.dtype != -1) dtype = a.dtype("options->dtype", o.dtype);
    std::optional<Layout> layout;
    if (o.layout) layout = layout_from(o.layout, from.desc.rank);
    result.set(transform(from, o.alpha, o.beta, dtype, layout, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnConcat(minidnnHandle_t handle, const minidnnTensor_t* tensors, int64_t count, int64_t axis,
                              minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.result("y", y);
    if (count > 0) a.present("tensors", tensors);
    std::vector<Tensor> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(a.tensor("an element of tensors", tensors[i]));
    result.set(concat(all, axis, call_of(handle, nullptr, result.out())));
  });
}

minidnnStatus_t minidnnPad(minidnnHandle_t handle, minidnnTensor_t x, const int64_t* before, const int64_t* after,
                           const minidnnPadOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnPadOptions_t>(options, MINIDNN_PAD_OPTIONS_INIT);
    Result result = a.result("y", y);
    const Tensor& from = a.tensor("x", x);
    const int64_t rank = from.desc.rank;
    a.sizes("before", rank, before);
    a.sizes("after", rank, after);
    const PadMode mode = pad_mode(a.present("options->mode", o.mode), "pad");
    result.set(pad(from, sides(before, after, rank), mode, o.value, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnGather(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t index, int64_t axis,
                              const minidnnOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("y", y);
    result.set(gather(a.tensor("x", x), a.tensor("index", index), axis, call_of(handle, algo, result.out())));
  });
}

minidnnStatus_t minidnnGatherBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t index, int64_t rank,
                                      const int64_t* x_shape, int64_t axis, const minidnnOptions_t* options,
                                      minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("dx", dx);
    const auto shape = a.sizes("x_shape", rank, x_shape);
    result.set(gather_backward(a.tensor("dy", dy), a.tensor("index", index), Shape(shape.begin(), shape.end()), axis,
                               call_of(handle, algo, result.out())));
  });
}

minidnnStatus_t minidnnFillUniform(minidnnHandle_t handle, minidnnTensor_t out, int64_t seed, int64_t offset,
                                   double low, double high, const minidnnOptions_t* options) {
  return guarded(__func__, [&](const Arguments& a) {
    fill_uniform(a.tensor("out", out), seed, offset, low, high, call_of(handle, a.algo(options)));
  });
}

minidnnStatus_t minidnnFillNormal(minidnnHandle_t handle, minidnnTensor_t out, int64_t seed, int64_t offset,
                                  double mean, double std, const minidnnOptions_t* options) {
  return guarded(__func__, [&](const Arguments& a) {
    fill_normal(a.tensor("out", out), seed, offset, mean, std, call_of(handle, a.algo(options)));
  });
}

minidnnStatus_t minidnnDropoutForward(minidnnHandle_t handle, minidnnTensor_t x, double p, int64_t seed, int64_t offset,
                                      const minidnnOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("y", y);
    result.set(dropout("dropout_forward", "x", a.tensor("x", x), p, seed, offset, call_of(handle, algo, result.out())));
  });
}

minidnnStatus_t minidnnDropoutBackward(minidnnHandle_t handle, minidnnTensor_t dy, double p, int64_t seed,
                                       int64_t offset, const minidnnOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("dx", dx);
    result.set(
        dropout("dropout_backward", "dy", a.tensor("dy", dy), p, seed, offset, call_of(handle, algo, result.out())));
  });
}
