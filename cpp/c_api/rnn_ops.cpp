// SPDX-License-Identifier: Apache-2.0
// The C functions of recurrent layers.
#include "cpp/c_api/arguments.h"
#include "cpp/rnn/rnn.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

minidnnRnnOptions_t given_options(const Arguments& a, const minidnnRnnOptions_t* options) {
  const auto o = a.options<minidnnRnnOptions_t>(a.present("options", options), MINIDNN_RNN_OPTIONS_INIT);
  a.present("options->mode", o.mode);
  return o;
}

RnnOptions options_of(const Arguments& a, const minidnnRnnOptions_t& o) {
  RnnOptions to;
  to.mode = o.mode;
  to.hidden_size = o.hidden_size;
  to.layers = o.layers;
  to.bidirectional = o.bidirectional != 0;
  to.bias = o.no_bias == 0;
  to.h0 = a.optional(o.h0);
  to.c0 = a.optional(o.c0);
  to.lengths = a.optional(o.lengths);
  to.batch_sizes = a.optional(o.batch_sizes);
  if (o.batch != -1) to.batch = o.batch;
  to.reset_after = o.reset_before == 0;
  to.dropout = o.dropout;
  to.seed = o.seed;
  to.offset = o.offset;
  if (o.clip != 0) to.clip = o.clip;
  if (o.ntc) to.layout = "ntc";
  return to;
}

RnnWeights weights_from(const Arguments& a, const char* name, const minidnnTensor_t* tensors, int64_t count) {
  if (count > 0) a.present(name, tensors);
  RnnWeights all;
  for (int64_t i = 0; i < count; ++i) all.push_back(a.tensor(name, tensors[i]));
  return all;
}

// Results for the slots of `count` tensors. Throws ShapeError unless there is one for each weight, or, if `may_be_one`,
// a single one.
std::vector<Result> results_for(const Arguments& a, const char* name, const RnnOptions& o, minidnnTensor_t* slots,
                                int64_t count, bool may_be_one) {
  a.present(name, slots);
  const int64_t each = (o.bidirectional ? 2 : 1) * (o.bias ? 4 : 2);
  const bool is_one = may_be_one && count == 1;
  MINIDNN_CHECK(ShapeError, is_one || (count % each == 0 && count / each == o.layers), a.name(), ": count must be ",
                may_be_one ? "1, or " : "", each, " for each of ", o.layers, " layers; got ", count);
  std::vector<Result> results;
  for (int64_t i = 0; i < count; ++i) results.push_back(a.result(name, slots + i));
  return results;
}

void set_all(std::vector<Result>& results, RnnWeights& tensors) {
  for (size_t i = 0; i < results.size(); ++i) results[i].set(std::move(tensors[i]));
}

}  // namespace

minidnnStatus_t minidnnRnnForward(minidnnHandle_t handle, minidnnTensor_t x, const minidnnTensor_t* weights,
                                  int64_t count, const minidnnRnnOptions_t* options, minidnnRnnResults_t* results) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = given_options(a, options);
    a.present("results", results);
    Result y = a.result("y", &results->y);
    Result hn = a.new_result("hn", &results->hn);
    Result cn = a.new_result("cn", &results->cn);
    Result reserve = a.new_result("reserve", &results->reserve);
    RnnResults r = rnn_forward(a.tensor("x", x), weights_from(a, "weights", weights, count), given.training != 0,
                               options_of(a, given), call_of(handle, given.algo, y.out()));
    y.set(std::move(r.y));
    hn.set(std::move(r.hn));
    if (r.cn) cn.set(std::move(*r.cn));
    if (r.reserve) reserve.set(std::move(*r.reserve));
  });
}

minidnnStatus_t minidnnRnnBackwardData(minidnnHandle_t handle, const minidnnRnnOutputGradients_t* of,
                                       const minidnnTensor_t* weights, int64_t count,
                                       const minidnnRnnOptions_t* options, minidnnRnnDataGradients_t* gradients) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = given_options(a, options);
    const minidnnRnnOutputGradients_t& from = *a.present("of", of);
    a.present("gradients", gradients);
    Result dx = a.result("dx", &gradients->dx);
    Result dh0 = a.new_result("dh0", &gradients->dh0);
    Result dc0 = a.new_result("dc0", &gradients->dc0);
    Result dgates = a.new_result("dgates", &gradients->dgates);
    RnnDataGradients g =
        rnn_backward_data({a.tensor("dy", from.dy), a.optional(from.dhn), a.optional(from.dcn)}, a.tensor("y", from.y),
                          weights_from(a, "weights", weights, count), a.tensor("reserve", from.reserve),
                          options_of(a, given), call_of(handle, given.algo, dx.out()));
    dx.set(std::move(g.dx));
    dh0.set(std::move(g.dh0));
    if (g.dc0) dc0.set(std::move(*g.dc0));
    dgates.set(std::move(g.dgates));
  });
}

minidnnStatus_t minidnnRnnBackwardWeights(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t y,
                                          minidnnTensor_t dgates, minidnnTensor_t reserve,
                                          const minidnnRnnOptions_t* options, minidnnTensor_t* dweights,
                                          int64_t count) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = given_options(a, options);
    const RnnOptions o = options_of(a, given);
    std::vector<Result> results = results_for(a, "dweights", o, dweights, count, true);
    RnnWeightGradients to{.flat = count == 1, .accumulate = given.accumulate != 0};
    for (const Result& r : results)
      if (auto out = r.out()) to.out.push_back(std::move(*out));
    MINIDNN_CHECK(InvalidArgument, to.out.empty() || to.out.size() == results.size(), a.name(), ": ", to.out.size(),
                  " of ", results.size(), " elements of dweights point to tensors; either all must, or none");
    RnnWeights made = rnn_backward_weights(a.tensor("x", x), a.tensor("y", y), a.tensor("dgates", dgates),
                                           a.tensor("reserve", reserve), to, o, call_of(handle, given.algo));
    set_all(results, made);
  });
}

minidnnStatus_t minidnnRnnPack(minidnnHandle_t handle, const minidnnTensor_t* weights, int64_t count,
                               const minidnnRnnOptions_t* options, minidnnTensor_t* packed) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = given_options(a, options);
    Result result = a.result("packed", packed);
    result.set(rnn_pack(weights_from(a, "weights", weights, count), options_of(a, given),
                        call_of(handle, nullptr, result.out())));
  });
}

minidnnStatus_t minidnnRnnUnpack(minidnnTensor_t packed, const minidnnRnnOptions_t* options, minidnnTensor_t* weights,
                                 int64_t count) {
  return guarded(__func__, [&](const Arguments& a) {
    const RnnOptions o = options_of(a, given_options(a, options));
    for (int64_t i = 0; i < count; ++i) a.new_result("an element of weights", a.present("weights", weights) + i);
    std::vector<Result> results = results_for(a, "weights", o, weights, count, false);
    RnnWeights views = rnn_unpack(a.tensor("packed", packed), o);
    set_all(results, views);
  });
}
