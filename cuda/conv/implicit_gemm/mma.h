// SPDX-License-Identifier: Apache-2.0
// Implicit GEMM for any strides and layouts, by the tensor-core main loop for sm_80 and later
// (cuda/gemm/mma/kernel.cu). This header has the base class of the engines cuda.conv.mma and cuda.conv.mma_3xtf32. Host
// only.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cuda/gemm/mma/plan.h"

namespace minidnn {
namespace cuda::conv {

struct MmaEngine : Engine<ConvProblem> {
  const MmaProducts products;
  explicit MmaEngine(MmaProducts p) : products(p) {}

  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (p.ieee) return mma_why_not_ieee(products);
    return mma_why_not(gemm_task(p), d, products);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return mma_estimate_us(gemm_task(p), d, products);
  }
  std::vector<Config> configs(const ConvProblem& p, const Device& d) const override {
    return mma_configs(gemm_task(p), d, products);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device&, const Config& config) const override {
    return mma_workspace_bytes(gemm_task(p), products, config);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    return make_plan<ConvProblem>(
        [p, plan = std::shared_ptr(mma_plan(gemm_task(p), d, products, config))](
            const ConvArgs& a, void* workspace, Stream stream) { plan->run(gemm_args(p, a), workspace, stream); });
  }
  std::vector<KernelSpec> kernels() const override { return mma_kernels(products); }
};

}  // namespace cuda::conv
}  // namespace minidnn
