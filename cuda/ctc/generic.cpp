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
  size_t workspace_bytes(const CtcProblem& p, const Device&, const Config&) const override { return ctc_workspace(p); }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device& d, const Config&) const override {
    const char* const sequences = p.direction == CtcDirection::forward ? "ctc_forward" : "ctc_backward";
    return ctc_plan(p, d, {generic_spec(sequences, p.loss.dtype)}, int64_t(64) * d.sm_count, 2 * p.longest() + 1);
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
