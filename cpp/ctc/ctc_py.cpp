// SPDX-License-Identifier: Apache-2.0
#include "cpp/bindings/casters.h"
#include "cpp/ctc/ctc.h"
#include "cpp/engine/registry.h"

namespace minidnn {

void bind_ctc(py::module_& m) {
  register_family<CtcProblem>();
  m.def(
      "ctc_loss_forward",
      [](const Tensor& x, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
         int64_t blank, std::string reduction, bool zero_infinity, bool logits, Algo algo, HandlePtr handle) {
        ReleaseGil release;
        CtcLoss r = ctc_loss_forward(x, {targets, input_lengths, target_lengths},
                                     {blank, std::move(reduction), zero_infinity, logits},
                                     {std::move(algo), {}, std::move(handle)});
        return std::tuple(r.loss, r.saved.alpha, r.saved.exponents, r.saved.lse);
      },
      py::arg("x"), py::arg("targets"), py::arg("input_lengths"), py::arg("target_lengths"), py::arg("blank"),
      py::arg("reduction"), py::arg("zero_infinity"), py::arg("logits"), py::arg("algo"), py::arg("handle"));
  m.def(
      "ctc_loss_backward",
      [](const Tensor& dloss, const Tensor& x, const Tensor& targets, const Tensor& input_lengths,
         const Tensor& target_lengths, const std::vector<Tensor>& saved, int64_t blank, std::string reduction,
         bool zero_infinity, bool logits, Algo algo, std::optional<Tensor> out, HandlePtr handle) {
        ReleaseGil release;
        MINIDNN_CHECK(ShapeError, saved.size() == 2 || saved.size() == 3,
                      "ctc_loss_backward: saved must be the 2 or 3 tensors of ctc_loss_forward; got ", saved.size());
        const auto lse = saved.size() == 3 ? std::optional(saved[2]) : std::nullopt;
        return ctc_loss_backward(dloss, x, {targets, input_lengths, target_lengths}, {saved[0], saved[1], lse},
                                 {blank, std::move(reduction), zero_infinity, logits},
                                 {std::move(algo), std::move(out), std::move(handle)});
      },
      py::arg("dloss"), py::arg("x"), py::arg("targets"), py::arg("input_lengths"), py::arg("target_lengths"),
      py::arg("saved"), py::arg("blank"), py::arg("reduction"), py::arg("zero_infinity"), py::arg("logits"),
      py::arg("algo"), py::arg("out"), py::arg("handle"));
}

}  // namespace minidnn
