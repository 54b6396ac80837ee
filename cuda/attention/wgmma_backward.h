// SPDX-License-Identifier: Apache-2.0
// What cuda.attention.wgmma_backward and cuda.attention.wgmma_ordered have in common. They differ in the order in which
// tiles of dq are added: in any order, or in a fixed one.
#pragma once
#include "cpp/attention/attention.h"

namespace minidnn::cuda::attention {

class WgmmaGradients : public Engine<AttentionProblem> {
 public:
  explicit WgmmaGradients(bool ordered) : ordered_(ordered) {}
  unsigned traits() const override { return ordered_ ? kNeedsJit : kNeedsJit | kNondeterministic; }
  std::string why_not(const AttentionProblem&, const Device&) const override;
  double estimate_us(const AttentionProblem&, const Device&) const override;
  size_t workspace_bytes(const AttentionProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem&, const Device&, const Config&) const override;
  std::vector<KernelSpec> kernels() const override;

 private:
  const bool ordered_;
};

}  // namespace minidnn::cuda::attention
