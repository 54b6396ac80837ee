// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"
#include "cpp/rnn/rnn.h"

namespace minidnn {
namespace {

using OptionalTensor = RnnOptions::OptionalTensor;

void bind_forward(py::module_& m) {
  m.def(
      "rnn_forward",
      [](const Tensor& x, const RnnWeights& weights, std::string mode, int64_t hidden_size, int64_t layers,
         bool bidirectional, bool bias, OptionalTensor h0, OptionalTensor c0, OptionalTensor lengths,
         OptionalTensor batch_sizes, std::optional<int64_t> batch, bool reset_after, double dropout, int64_t seed,
         int64_t offset, std::optional<double> clip, bool training, std::string layout, Algo algo, OptionalTensor out,
         HandlePtr handle) {
        ReleaseGil release;
        const RnnOptions options{.mode = std::move(mode),
                                 .hidden_size = hidden_size,
                                 .layers = layers,
                                 .bidirectional = bidirectional,
                                 .bias = bias,
                                 .h0 = std::move(h0),
                                 .c0 = std::move(c0),
                                 .lengths = std::move(lengths),
                                 .batch_sizes = std::move(batch_sizes),
                                 .batch = batch,
                                 .reset_after = reset_after,
                                 .dropout = dropout,
                                 .seed = seed,
                                 .offset = offset,
                                 .clip = clip,
                                 .layout = std::move(layout)};
        RnnResults r = rnn_forward(x, weights, training, options, {std::move(algo), std::move(out), std::move(handle)});
        return std::tuple(r.y, r.hn, r.cn, r.reserve);
      },
      py::arg("x"), py::arg("weights"), py::arg("mode"), py::arg("hidden_size"), py::arg("layers"),
      py::arg("bidirectional"), py::arg("bias"), py::arg("h0"), py::arg("c0"), py::arg("lengths"),
      py::arg("batch_sizes"), py::arg("batch"), py::arg("reset_after"), py::arg("dropout"), py::arg("seed"),
      py::arg("offset"), py::arg("clip"), py::arg("training"), py::arg("layout"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

void bind_backward_data(py::module_& m) {
  m.def(
      "rnn_backward_data",
      [](const Tensor& dy, OptionalTensor dhn, OptionalTensor dcn, const Tensor& y, const RnnWeights& weights,
         const Tensor& reserve, std::string mode, int64_t hidden_size, int64_t layers, bool bidirectional, bool bias,
         OptionalTensor h0, OptionalTensor c0, OptionalTensor lengths, OptionalTensor batch_sizes,
         std::optional<int64_t> batch, bool reset_after, double dropout, int64_t seed, int64_t offset,
         std::optional<double> clip, std::string layout, Algo algo, OptionalTensor out, HandlePtr handle) {
        ReleaseGil release;
        const RnnOptions options{.mode = std::move(mode),
                                 .hidden_size = hidden_size,
                                 .layers = layers,
                                 .bidirectional = bidirectional,
                                 .bias = bias,
                                 .h0 = std::move(h0),
                                 .c0 = std::move(c0),
                                 .lengths = std::move(lengths),
                                 .batch_sizes = std::move(batch_sizes),
                                 .batch = batch,
                                 .reset_after = reset_after,
                                 .dropout = dropout,
                                 .seed = seed,
                                 .offset = offset,
                                 .clip = clip,
                                 .layout = std::move(layout)};
        RnnDataGradients g = rnn_backward_data({dy, std::move(dhn), std::move(dcn)}, y, weights, reserve, options,
                                               {std::move(algo), std::move(out), std::move(handle)});
        return std::tuple(g.dx, g.dh0, g.dc0, g.dgates);
      },
      py::arg("dy"), py::arg("dhn"), py::arg("dcn"), py::arg("y"), py::arg("weights"), py::arg("reserve"),
      py::arg("mode"), py::arg("hidden_size"), py::arg("layers"), py::arg("bidirectional"), py::arg("bias"),
      py::arg("h0"), py::arg("c0"), py::arg("lengths"), py::arg("batch_sizes"), py::arg("batch"),
      py::arg("reset_after"), py::arg("dropout"), py::arg("seed"), py::arg("offset"), py::arg("clip"),
      py::arg("layout"), py::arg("algo"), py::arg("out"), py::arg("handle"));
}

void bind_backward_weights(py::module_& m) {
  m.def(
      "rnn_backward_weights",
      [](const Tensor& x, OptionalTensor h0, const Tensor& y, const Tensor& dgates, const Tensor& reserve,
         std::string mode, int64_t hidden_size, int64_t layers, bool bidirectional, bool bias, OptionalTensor lengths,
         OptionalTensor batch_sizes, std::optional<int64_t> batch, bool reset_after, double dropout, int64_t seed,
         int64_t offset, std::string layout, bool flat, bool accumulate, Algo algo, RnnWeights out, HandlePtr handle) {
        ReleaseGil release;
        const RnnOptions options{.mode = std::move(mode),
                                 .hidden_size = hidden_size,
                                 .layers = layers,
                                 .bidirectional = bidirectional,
                                 .bias = bias,
                                 .h0 = std::move(h0),
                                 .lengths = std::move(lengths),
                                 .batch_sizes = std::move(batch_sizes),
                                 .batch = batch,
                                 .reset_after = reset_after,
                                 .dropout = dropout,
                                 .seed = seed,
                                 .offset = offset,
                                 .layout = std::move(layout)};
        return rnn_backward_weights(x, y, dgates, reserve, {std::move(out), flat, accumulate}, options,
                                    {std::move(algo), {}, std::move(handle)});
      },
      py::arg("x"), py::arg("h0"), py::arg("y"), py::arg("dgates"), py::arg("reserve"), py::arg("mode"),
      py::arg("hidden_size"), py::arg("layers"), py::arg("bidirectional"), py::arg("bias"), py::arg("lengths"),
      py::arg("batch_sizes"), py::arg("batch"), py::arg("reset_after"), py::arg("dropout"), py::arg("seed"),
      py::arg("offset"), py::arg("layout"), py::arg("flat"), py::arg("accumulate"), py::arg("algo"), py::arg("out"),
      py::arg("handle"));
}

void bind_packing(py::module_& m) {
  const auto sizes = [](std::string mode, int64_t hidden_size, int64_t layers, bool bidirectional, bool bias) {
    return RnnOptions{.mode = std::move(mode),
                      .hidden_size = hidden_size,
                      .layers = layers,
                      .bidirectional = bidirectional,
                      .bias = bias};
  };
  m.def(
      "rnn_pack",
      [sizes](const RnnWeights& weights, std::string mode, int64_t hidden_size, int64_t layers, bool bidirectional,
              bool bias, OptionalTensor out, HandlePtr handle) {
        ReleaseGil release;
        return rnn_pack(weights, sizes(std::move(mode), hidden_size, layers, bidirectional, bias),
                        {"", std::move(out), std::move(handle)});
      },
      py::arg("weights"), py::arg("mode"), py::arg("hidden_size"), py::arg("layers"), py::arg("bidirectional"),
      py::arg("bias"), py::arg("out"), py::arg("handle"));
  m.def(
      "rnn_unpack",
      [sizes](const Tensor& tensor, std::string mode, int64_t hidden_size, int64_t layers, bool bidirectional,
              bool bias) {
        ReleaseGil release;
        return rnn_unpack(tensor, sizes(std::move(mode), hidden_size, layers, bidirectional, bias));
      },
      py::arg("tensor"), py::arg("mode"), py::arg("hidden_size"), py::arg("layers"), py::arg("bidirectional"),
      py::arg("bias"));
}

}  // namespace

void bind_rnn(py::module_& m) {
  register_family<RnnProblem>();
  bind_forward(m);
  bind_backward_data(m);
  bind_backward_weights(m);
  bind_packing(m);
}

}  // namespace minidnn
