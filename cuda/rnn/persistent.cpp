// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.persistent: a launch for each layer. All blocks run at the same time, and exchange the states of each step
// through the L2.
#include "cpp/engine/engine_object.h"
#include "cuda/rnn/persistent_layer.h"

namespace minidnn {
namespace cuda::rnn {

struct Persistent final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.persistent"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem& p, const Device& d) const override {
    if (std::string why = persistent_why_not(p, d); !why.empty()) return why;
    if (persistent_shape(p, d, Exchange::l2).slices == 0) {
      const double bytes = 2.0 * double(p.directions * p.gates() * p.hidden * p.hidden);
      return cat("weights of ", bytes_text(bytes), " or a batch of ", p.batch, " are too large for the registers of ",
                 d.sm_count, " multiprocessors");
    }
    return "";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    return persistent_estimate_us(p, d, Exchange::l2);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return persistent_workspace_bytes(p, d, Exchange::l2);
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return persistent_plan(p, d, Exchange::l2);
  }
  std::vector<KernelSpec> kernels() const override { return persistent_kernels(Exchange::l2); }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::Persistent>();

}  // namespace minidnn
