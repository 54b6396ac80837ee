// SPDX-License-Identifier: Apache-2.0
// cuda.ctc.generic: a block of threads computes each sequence, for all options and any strides.
#include "cuda/ctc/launches.h"

namespace minidnn {
namespace cuda::ctc {

struct Generic final : Engine<CtcProblem> {
  std::string name() const override { return "cuda.ctc.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const CtcProblem&, const Device&) const override { return ""; }
  // A step of a sequence takes a microsecond or more: its threads wait for each other, and read the step before.
  double estimate_us(const CtcProblem& p, const Device& d) const override {
    const bool backward = p.direction == CtcDirection::backward;
    const double turns = std::ceil(double(p.batch()) / (8.0 * d.sm_count));
    const double states = std::ceil(double(2 * p.longest() + 1) / kMostThreads);
    return 6 + double(p.steps()) * turns * states * (backward ? 3 : 1.5) + roofline_us(0, ctc_bytes(p), d, 0.5);
  }
  size_t workspace_bytes(const CtcProblem& p, const Device&, const Config&) const override {
    const bool wide = p.x.dtype == DType::float64;
    const int64_t scratch = wide ? CtcScratch<double>::bytes(p) : CtcScratch<float>::bytes(p);
    return size_t(p.batch() * itemsize(p.loss.dtype) + (p.direction == CtcDirection::backward ? scratch : 0));
  }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device& d, const Config&) const override {
    auto plan = std::make_unique<LaunchesPlan>(p);
    const int64_t rows = p.steps() * p.batch(), states = 2 * p.longest() + 1;
    if (p.direction == CtcDirection::backward) {
      plan->add_generic("ctc_gradients", p.batch(), p.longest(), d);
      plan->add_generic("ctc_rows", rows, p.classes(), d);
      plan->add_generic("ctc_backward", p.batch(), states, d);
      return plan;
    }
    if (p.logits) plan->add_generic("ctc_lse", rows, p.classes(), d);
    plan->add_generic("ctc_forward", p.batch(), states, d);
    plan->add_total(d);
    return plan;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float64})
      for (const char* kernel : {"ctc_lse", "ctc_forward", "ctc_add", "ctc_gradients", "ctc_rows", "ctc_backward"})
        all.push_back(generic_spec(kernel, t));
    return all;
  }
};

}  // namespace cuda::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cuda::ctc::Generic>();

}  // namespace minidnn
