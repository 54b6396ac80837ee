// SPDX-License-Identifier: Apache-2.0
// The C functions for images: convolution, pooling, local response norm and local contrast norm.
#include "cpp/c_api/arguments.h"
#include "cpp/conv/conv.h"
#include "cpp/lrn/lrn.h"
#include "cpp/pooling/pooling.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

ConvAttributes attributes(const minidnnConvOptions_t& o, const Tensor& x) {
  const int64_t rank = x.desc.rank;
  const std::vector<int64_t> stride = spatial(o.stride, rank);
  return {stride, spatial(o.dilation, rank), sides(o.padding_before, o.padding_after, int64_t(stride.size())), o.groups,
          o.flip != 0};
}

Activation activation_of(const minidnnConvOptions_t& o, const char* call) {
  return o.activation ? activation_from(o.activation, call) : Activation::identity;
}

bool any(const int64_t (&values)[3]) {
  return std::ranges::any_of(values, [](int64_t n) { return n != 0; });
}

PoolingAttributes attributes(const Arguments& a, const minidnnPoolOptions_t& o, const Tensor& x, const char* call) {
  const int64_t rank = x.desc.rank;
  PoolingAttributes p{spatial(o.window, rank), pooling_mode_from(a.present("options->mode", o.mode), call)};
  if (any(o.stride)) p.stride = spatial(o.stride, rank);
  p.padding = sides(o.padding_before, o.padding_after, int64_t(p.window.size()));
  p.dilation = spatial(o.dilation, rank);
  p.ceil_mode = o.ceil_mode != 0;
  p.norm = o.norm;
  if (any(o.adaptive_size)) {
    p.size = spatial(o.adaptive_size, rank);
    p.window.clear();
  }
  return p;
}

struct LrnArguments {
  const char* algo;
  LrnOptions options;
};
LrnArguments lrn_arguments(const Arguments& a, const minidnnLrnOptions_t* options) {
  const auto o = a.options<minidnnLrnOptions_t>(options, MINIDNN_LRN_OPTIONS_INIT);
  return {o.algo, {o.window, o.alpha, o.beta, o.k}};
}

}  // namespace

minidnnStatus_t minidnnConvForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t w, minidnnTensor_t bias,
                                   minidnnTensor_t residual, const minidnnConvOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnConvOptions_t>(options, MINIDNN_CONV_OPTIONS_INIT);
    Result result = a.result("y", y);
    const Tensor& data = a.tensor("x", x);
    result.set(conv_forward(data, a.tensor("w", w), a.optional(bias), a.optional(residual), attributes(o, data),
                            activation_of(o, "conv_forward"), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnConvForwardStatistics(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t w,
                                             minidnnTensor_t bias, minidnnTensor_t residual,
                                             const minidnnConvOptions_t* options, minidnnConvStatistics_t* results) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnConvOptions_t>(options, MINIDNN_CONV_OPTIONS_INIT);
    a.present("results", results);
    Result y = a.result("y", &results->y);
    Result sum = a.new_result("sum", &results->sum);
    Result squares = a.new_result("sum_of_squares", &results->sum_of_squares);
    const Tensor& data = a.tensor("x", x);
    ConvStatistics s =
        conv_forward_statistics(data, a.tensor("w", w), a.optional(bias), a.optional(residual), attributes(o, data),
                                activation_of(o, "conv_forward_statistics"), call_of(handle, o.algo, y.out()));
    y.set(std::move(s.y));
    sum.set(std::move(s.sum));
    squares.set(std::move(s.sum_of_squares));
  });
}

minidnnStatus_t minidnnConvBackwardData(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t w, int64_t rank,
                                        const int64_t* x_shape, const minidnnConvOptions_t* options,
                                        minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnConvOptions_t>(options, MINIDNN_CONV_OPTIONS_INIT);
    Result result = a.result("dx", dx);
    const Tensor& gradient = a.tensor("dy", dy);
    const auto shape = a.sizes("x_shape", rank, x_shape);
    result.set(conv_backward_data(gradient, a.tensor("w", w), Shape(shape.begin(), shape.end()),
                                  attributes(o, gradient), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnConvBackwardFilter(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x, int64_t rank,
                                          const int64_t* w_shape, const minidnnConvOptions_t* options,
                                          minidnnTensor_t* dw) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnConvOptions_t>(options, MINIDNN_CONV_OPTIONS_INIT);
    Result result = a.result("dw", dw);
    const Tensor& gradient = a.tensor("dy", dy);
    const auto shape = a.sizes("w_shape", rank, w_shape);
    result.set(conv_backward_filter(gradient, a.tensor("x", x), Shape(shape.begin(), shape.end()),
                                    attributes(o, gradient), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnConvBackwardBias(minidnnHandle_t handle, minidnnTensor_t dy, const minidnnOptions_t* options,
                                        minidnnTensor_t* db) {
  return guarded(__func__, [&](const Arguments& a) {
    const char* algo = a.algo(options);
    Result result = a.result("db", db);
    result.set(conv_backward_bias(a.tensor("dy", dy), call_of(handle, algo, result.out())));
  });
}

minidnnStatus_t minidnnPoolForward(minidnnHandle_t handle, minidnnTensor_t x, const minidnnPoolOptions_t* options,
                                   minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnPoolOptions_t>(options, MINIDNN_POOL_OPTIONS_INIT);
    Result result = a.result("y", y);
    const Tensor& data = a.tensor("x", x);
    result.set(pool_forward(data, attributes(a, o, data, "pool_forward"), call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnPoolForwardWithIndices(minidnnHandle_t handle, minidnnTensor_t x, minidnnDType_t index_dtype,
                                              const minidnnPoolOptions_t* options, minidnnTensor_t* y,
                                              minidnnTensor_t* indices) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnPoolOptions_t>(options, MINIDNN_POOL_OPTIONS_INIT);
    Result result = a.result("y", y);
    Result positions = a.new_result("indices", indices);
    const Tensor& data = a.tensor("x", x);
    auto [pooled, at] =
        pool_forward_with_indices(data, attributes(a, o, data, "pool_forward_with_indices"),
                                  a.dtype("index_dtype", index_dtype), call_of(handle, o.algo, result.out()));
    result.set(std::move(pooled));
    positions.set(std::move(at));
  });
}

minidnnStatus_t minidnnPoolBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x, minidnnTensor_t y,
                                    minidnnTensor_t indices, const minidnnPoolOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnPoolOptions_t>(options, MINIDNN_POOL_OPTIONS_INIT);
    Result result = a.result("dx", dx);
    const Tensor& data = a.tensor("x", x);
    result.set(pool_backward(a.tensor("dy", dy), data, a.tensor("y", y), attributes(a, o, data, "pool_backward"),
                             call_of(handle, o.algo, result.out()), a.optional(indices)));
  });
}

minidnnStatus_t minidnnLrnForward(minidnnHandle_t handle, minidnnTensor_t x, const minidnnLrnOptions_t* options,
                                  minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const LrnArguments o = lrn_arguments(a, options);
    Result result = a.result("y", y);
    result.set(lrn_forward(a.tensor("x", x), o.options, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnLrnBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                   const minidnnLrnOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const LrnArguments o = lrn_arguments(a, options);
    Result result = a.result("dx", dx);
    result.set(lrn_backward(a.tensor("dy", dy), a.tensor("x", x), o.options, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnLcnForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t means,
                                  const minidnnLrnOptions_t* options, minidnnTensor_t* y) {
  return guarded(__func__, [&](const Arguments& a) {
    const LrnArguments o = lrn_arguments(a, options);
    Result result = a.result("y", y);
    result.set(lcn_forward(a.tensor("x", x), a.optional(means), o.options, call_of(handle, o.algo, result.out())));
  });
}

minidnnStatus_t minidnnLcnBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x, minidnnTensor_t means,
                                   const minidnnLrnOptions_t* options, minidnnTensor_t* dx, minidnnTensor_t* dmeans) {
  return guarded(__func__, [&](const Arguments& a) {
    const LrnArguments o = lrn_arguments(a, options);
    Result result = a.result("dx", dx);
    std::optional<Result> of_means;
    if (means) of_means = a.new_result("dmeans", dmeans);
    LcnBackward gradients = lcn_backward(a.tensor("dy", dy), a.tensor("x", x), a.optional(means), o.options,
                                         call_of(handle, o.algo, result.out()));
    result.set(std::move(gradients.dx));
    if (of_means) of_means->set(std::move(*gradients.dmeans));
  });
}
