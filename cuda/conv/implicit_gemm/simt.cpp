// SPDX-License-Identifier: Apache-2.0
// cuda.conv.simt: an engine that computes an implicit GEMM by float32 multiply-adds, without tensor cores
// (cuda/gemm/simt/kernel.cu). It accepts any strides, layouts, groups and dilations. In dx of a strided convolution, a
// phase is the positions of dx whose coordinates have the same remainder modulo the stride. Each launch computes up to
// four phases. If groups have few channels, most of each tile is empty.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cuda/gemm/simt/plan.h"

namespace minidnn {
namespace cuda::conv {

struct Simt final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.simt"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    return simt_why_not(gemm_task(p));
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override { return simt_estimate_us(gemm_task(p), d); }
  std::vector<Config> configs(const ConvProblem& p, const Device& d) const override {
    return simt_configs(gemm_task(p), d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device&, const Config& config) const override {
    return simt_workspace_bytes(gemm_task(p), config);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    return make_plan<ConvProblem>(
        [p, plan = std::shared_ptr(simt_plan(gemm_task(p), d, config))](
            const ConvArgs& a, void* workspace, Stream stream) { plan->run(gemm_args(p, a), workspace, stream); });
  }
  std::vector<KernelSpec> kernels() const override { return simt_kernels(); }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Simt>();

}  // namespace minidnn
