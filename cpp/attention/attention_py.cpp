// SPDX-License-Identifier: Apache-2.0
#include "cpp/attention/attention.h"
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"

namespace minidnn {

void bind_attention(py::module_& m) {
  register_family<AttentionProblem>();
  m.def(
      "attention_forward",
      [](const Tensor& q, const Tensor& k, const Tensor& v, std::optional<double> scale, bool causal, std::string align,
         std::optional<int64_t> left, std::optional<int64_t> right, std::optional<Tensor> bias,
         std::optional<Tensor> alibi, std::optional<Tensor> sink, double softcap, double dropout, int64_t seed,
         int64_t offset, std::optional<Tensor> q_lengths, std::optional<Tensor> kv_lengths, std::optional<Tensor> cu_q,
         std::optional<Tensor> cu_kv, std::optional<int64_t> max_q, std::optional<int64_t> max_kv, std::string layout,
         Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        const AttentionOptions options{.scale = scale,
                                       .causal = causal,
                                       .align = std::move(align),
                                       .left = left,
                                       .right = right,
                                       .bias = std::move(bias),
                                       .alibi = std::move(alibi),
                                       .sink = std::move(sink),
                                       .softcap = softcap,
                                       .dropout = dropout,
                                       .seed = seed,
                                       .offset = offset,
                                       .q_lengths = std::move(q_lengths),
                                       .kv_lengths = std::move(kv_lengths),
                                       .cu_q = std::move(cu_q),
                                       .cu_kv = std::move(cu_kv),
                                       .max_q = max_q,
                                       .max_kv = max_kv,
                                       .layout = std::move(layout)};
        auto [o, lse] = attention_forward(q, k, v, options, {std::move(algo), std::move(out), std::move(handle)});
        return std::tuple(o, lse);
      },
      py::arg("q"), py::arg("k"), py::arg("v"), py::arg("scale"), py::arg("causal"), py::arg("align"), py::arg("left"),
      py::arg("right"), py::arg("bias"), py::arg("alibi"), py::arg("sink"), py::arg("softcap"), py::arg("dropout"),
      py::arg("seed"), py::arg("offset"), py::arg("q_lengths"), py::arg("kv_lengths"), py::arg("cu_q"),
      py::arg("cu_kv"), py::arg("max_q"), py::arg("max_kv"), py::arg("layout"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
  m.def(
      "attention_backward",
      [](const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
         std::optional<double> scale, bool causal, std::string align, std::optional<int64_t> left,
         std::optional<int64_t> right, std::optional<Tensor> bias, std::optional<Tensor> alibi,
         std::optional<Tensor> sink, double softcap, double dropout, int64_t seed, int64_t offset,
         std::optional<Tensor> q_lengths, std::optional<Tensor> kv_lengths, std::optional<Tensor> cu_q,
         std::optional<Tensor> cu_kv, std::optional<int64_t> max_q, std::optional<int64_t> max_kv, std::string layout,
         bool bias_gradient, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        const AttentionOptions options{.scale = scale,
                                       .causal = causal,
                                       .align = std::move(align),
                                       .left = left,
                                       .right = right,
                                       .bias = std::move(bias),
                                       .alibi = std::move(alibi),
                                       .sink = std::move(sink),
                                       .softcap = softcap,
                                       .dropout = dropout,
                                       .seed = seed,
                                       .offset = offset,
                                       .q_lengths = std::move(q_lengths),
                                       .kv_lengths = std::move(kv_lengths),
                                       .cu_q = std::move(cu_q),
                                       .cu_kv = std::move(cu_kv),
                                       .max_q = max_q,
                                       .max_kv = max_kv,
                                       .layout = std::move(layout)};
        AttentionGradients g = attention_backward(d_o, {q, k, v, o, lse}, bias_gradient, options,
                                                  {std::move(algo), {}, std::move(handle)});
        return std::tuple(g.dq, g.dk, g.dv, g.dbias, g.dsink);
      },
      py::arg("do"), py::arg("q"), py::arg("k"), py::arg("v"), py::arg("o"), py::arg("lse"), py::arg("scale"),
      py::arg("causal"), py::arg("align"), py::arg("left"), py::arg("right"), py::arg("bias"), py::arg("alibi"),
      py::arg("sink"), py::arg("softcap"), py::arg("dropout"), py::arg("seed"), py::arg("offset"), py::arg("q_lengths"),
      py::arg("kv_lengths"), py::arg("cu_q"), py::arg("cu_kv"), py::arg("max_q"), py::arg("max_kv"), py::arg("layout"),
      py::arg("bias_gradient"), py::arg("algo"), py::arg("handle"));
  m.def(
      "attention_decode",
      [](const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths,
         std::optional<double> scale, std::optional<int64_t> left, std::optional<Tensor> alibi,
         std::optional<Tensor> sink, double softcap, std::string layout, std::optional<Tensor> pages, Algo algo,
         std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        const AttentionOptions options{.scale = scale,
                                       .left = left,
                                       .alibi = std::move(alibi),
                                       .sink = std::move(sink),
                                       .softcap = softcap,
                                       .pages = std::move(pages),
                                       .layout = std::move(layout)};
        auto [o, lse] = attention_decode(q, k_cache, v_cache, lengths, options,
                                         {std::move(algo), std::move(out), std::move(handle)});
        return std::tuple(o, lse);
      },
      py::arg("q"), py::arg("k_cache"), py::arg("v_cache"), py::arg("lengths"), py::arg("scale"), py::arg("left"),
      py::arg("alibi"), py::arg("sink"), py::arg("softcap"), py::arg("layout"), py::arg("pages"), py::arg("algo"),
      py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
