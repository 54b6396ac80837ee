// SPDX-License-Identifier: Apache-2.0
// The C functions of attention.
#include "cpp/attention/attention.h"
#include "cpp/c_api/arguments.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

AttentionOptions options_of(const Arguments& a, const minidnnAttentionOptions_t& o) {
  const auto sides = [](int64_t columns) { return columns == -1 ? std::nullopt : std::optional(columns); };
  AttentionOptions to;
  if (o.scale) to.scale = *o.scale;
  to.causal = o.causal != 0;
  if (o.bottom_right) to.align = "bottom_right";
  to.left = sides(o.left);
  to.right = sides(o.right);
  to.softcap = o.softcap;
  to.dropout = o.dropout;
  to.seed = o.seed;
  to.offset = o.offset;
  to.bias = a.optional(o.bias);
  to.alibi = a.optional(o.alibi);
  to.sink = a.optional(o.sink);
  to.q_lengths = a.optional(o.q_lengths);
  to.kv_lengths = a.optional(o.kv_lengths);
  to.cu_q = a.optional(o.cu_q);
  to.cu_kv = a.optional(o.cu_kv);
  if (to.cu_q) {
    to.max_q = o.max_q;
    to.max_kv = o.max_kv;
  }
  to.pages = a.optional(o.pages);
  if (o.bshd) to.layout = "bshd";
  return to;
}

}  // namespace

minidnnStatus_t minidnnAttentionForward(minidnnHandle_t handle, minidnnTensor_t q, minidnnTensor_t k, minidnnTensor_t v,
                                        const minidnnAttentionOptions_t* options, minidnnTensor_t* o,
                                        minidnnTensor_t* lse) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = a.options<minidnnAttentionOptions_t>(options, MINIDNN_ATTENTION_OPTIONS_INIT);
    Result result = a.result("o", o);
    Result sums = a.new_result("lse", lse);
    auto [value, sum] = attention_forward(a.tensor("q", q), a.tensor("k", k), a.tensor("v", v), options_of(a, given),
                                          call_of(handle, given.algo, result.out()));
    result.set(std::move(value));
    sums.set(std::move(sum));
  });
}

minidnnStatus_t minidnnAttentionDecode(minidnnHandle_t handle, minidnnTensor_t q, minidnnTensor_t k_cache,
                                       minidnnTensor_t v_cache, minidnnTensor_t lengths,
                                       const minidnnAttentionOptions_t* options, minidnnTensor_t* o,
                                       minidnnTensor_t* lse) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = a.options<minidnnAttentionOptions_t>(options, MINIDNN_ATTENTION_OPTIONS_INIT);
    Result result = a.result("o", o);
    Result sums = a.new_result("lse", lse);
    auto [value, sum] =
        attention_decode(a.tensor("q", q), a.tensor("k_cache", k_cache), a.tensor("v_cache", v_cache),
                         a.tensor("lengths", lengths), options_of(a, given), call_of(handle, given.algo, result.out()));
    result.set(std::move(value));
    sums.set(std::move(sum));
  });
}

minidnnStatus_t minidnnAttentionBackward(minidnnHandle_t handle, minidnnTensor_t d_o,
                                         const minidnnAttentionTensors_t* forward,
                                         const minidnnAttentionOptions_t* options,
                                         minidnnAttentionGradients_t* gradients) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto given = a.options<minidnnAttentionOptions_t>(options, MINIDNN_ATTENTION_OPTIONS_INIT);
    const minidnnAttentionTensors_t& f = *a.present("forward", forward);
    a.present("gradients", gradients);
    Result dq = a.new_result("dq", &gradients->dq);
    Result dk = a.new_result("dk", &gradients->dk);
    Result dv = a.new_result("dv", &gradients->dv);
    Result dbias = a.new_result("dbias", &gradients->dbias);
    Result dsink = a.new_result("dsink", &gradients->dsink);
    AttentionGradients g = attention_backward(
        a.tensor("d_o", d_o),
        {a.tensor("q", f.q), a.tensor("k", f.k), a.tensor("v", f.v), a.tensor("o", f.o), a.tensor("lse", f.lse)},
        given.bias_gradient != 0, options_of(a, given), call_of(handle, given.algo));
    dq.set(std::move(g.dq));
    dk.set(std::move(g.dk));
    dv.set(std::move(g.dv));
    if (g.dbias) dbias.set(std::move(*g.dbias));
    if (g.dsink) dsink.set(std::move(*g.dsink));
  });
}
