// SPDX-License-Identifier: Apache-2.0
// cuda.conv.wgmma: implicit matrix products by the tensor-core main loop of sm_90a (cuda/gemm/sm90.cuh). Pixels come by
// im2col tensor maps, so nothing is lowered in memory.
#include "cuda/conv/engines.h"
#include "cuda/gemm/sm90_host.h"

namespace minidnn {
namespace {

struct Wgmma final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.wgmma"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "computes products; the gradient of a bias is none";
    if (p.ieee) return "multiplies float32 as TF32, and math='ieee' forbids it";
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "needs something to sum; an operand is empty";
    return sm90_why_not(gemm_task(p), d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override { return sm90_estimate_us(gemm_task(p), d); }
  std::vector<Config> configs(const ConvProblem& p, const Device& d) const override {
    return sm90_configs(gemm_task(p), d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device&, const Config& config) const override {
    return sm90_workspace_bytes(gemm_task(p), config);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    return make_plan<ConvProblem>([p, plan = std::shared_ptr(sm90_plan(gemm_task(p), d, config))](
                                      const ConvArgs& a, void* workspace, Stream stream) {
      plan->run(gemm_args(p, a), workspace, stream);
    });
  }
  std::vector<KernelSpec> kernels() const override { return sm90_kernels(true); }
};

}  // namespace

const Engine<ConvProblem>& conv_wgmma() {
  static const Wgmma engine;
  return engine;
}

}  // namespace minidnn
