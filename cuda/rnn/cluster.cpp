// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.cluster: a launch for each layer. A cluster of blocks computes some sequences, and its blocks exchange the
// states of each step through their shared memory.
#include "cpp/engine/engine_object.h"
#include "cuda/rnn/persistent_layer.h"

namespace minidnn {
namespace cuda::rnn {

struct Cluster final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.cluster"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem& p, const Device& d) const override {
    if (std::string why = persistent_why_not(p, d); !why.empty()) return why;
    if (d.arch / 10 != 9) return cat("needs clusters of sm_90; got sm_", d.arch);
    if (persistent_shape(p, d, Exchange::cluster).slices == 0)
      return cat("the weights of ", p.hidden, " hidden units are too large for the registers of a cluster");
    return "";
  }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    return persistent_estimate_us(p, d, Exchange::cluster);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device& d, const Config&) const override {
    return persistent_workspace_bytes(p, d, Exchange::cluster);
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    return persistent_plan(p, d, Exchange::cluster);
  }
  std::vector<KernelSpec> kernels() const override { return persistent_kernels(Exchange::cluster); }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::Cluster>();

}  // namespace minidnn
