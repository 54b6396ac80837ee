// SPDX-License-Identifier: Apache-2.0
// The C functions of the CTC loss.
#include "cpp/c_api/arguments.h"
#include "cpp/ctc/ctc.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

// The operands that forward and backward share.
struct Given {
  minidnnCtcOptions_t o;
  Tensor x, targets, input_lengths, target_lengths;
  Given(const Arguments& a, minidnnTensor_t x_, const minidnnCtcTargets_t* t, const minidnnCtcOptions_t* options)
      : o(a.options<minidnnCtcOptions_t>(options, MINIDNN_CTC_OPTIONS_INIT)),
        x(a.tensor("x", x_)),
        targets(a.tensor("targets->targets", a.present("targets", t)->targets)),
        input_lengths(a.tensor("targets->input_lengths", t->input_lengths)),
        target_lengths(a.tensor("targets->target_lengths", t->target_lengths)),
        reduction_(a.present("options->reduction", o.reduction)) {}
  CtcTargets all() const { return {targets, input_lengths, target_lengths}; }
  CtcOptions options() const { return {o.blank, reduction_, o.zero_infinity != 0, o.logits != 0}; }

 private:
  const char* reduction_;
};

}  // namespace

minidnnStatus_t minidnnCtcLossForward(minidnnHandle_t handle, minidnnTensor_t x, const minidnnCtcTargets_t* targets,
                                      const minidnnCtcOptions_t* options, minidnnTensor_t* loss,
                                      minidnnCtcSaved_t* saved) {
  return guarded(__func__, [&](const Arguments& a) {
    const Given given(a, x, targets, options);
    a.present("saved", saved);
    Result value = a.new_result("loss", loss);
    Result alpha = a.new_result("alpha", &saved->alpha);
    Result exponents = a.new_result("exponents", &saved->exponents);
    Result lse = a.new_result("lse", &saved->lse);
    CtcLoss r = ctc_loss_forward(given.x, given.all(), given.options(), call_of(handle, given.o.algo));
    value.set(std::move(r.loss));
    alpha.set(std::move(r.saved.alpha));
    exponents.set(std::move(r.saved.exponents));
    if (r.saved.lse) lse.set(std::move(*r.saved.lse));
  });
}

minidnnStatus_t minidnnCtcLossBackward(minidnnHandle_t handle, minidnnTensor_t dloss, minidnnTensor_t x,
                                       const minidnnCtcTargets_t* targets, const minidnnCtcSaved_t* saved,
                                       const minidnnCtcOptions_t* options, minidnnTensor_t* dx) {
  return guarded(__func__, [&](const Arguments& a) {
    const Given given(a, x, targets, options);
    const minidnnCtcSaved_t& s = *a.present("saved", saved);
    Result result = a.result("dx", dx);
    result.set(ctc_loss_backward(
        a.tensor("dloss", dloss), given.x, given.all(),
        {a.tensor("saved->alpha", s.alpha), a.tensor("saved->exponents", s.exponents), a.optional(s.lse)},
        given.options(), call_of(handle, given.o.algo, result.out())));
  });
}
