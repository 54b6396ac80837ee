// SPDX-License-Identifier: Apache-2.0
// The base class of the engines cuda.matmul.mma and cuda.matmul.mma_3xtf32. The two engines differ only in the number
// of TF32 products for each float32 product. Host only.
#pragma once
#include "cpp/engine/engine_object.h"
#include "cuda/gemm/mma/plan.h"

namespace minidnn::cuda::matmul {

struct MmaEngine : Engine<MatmulProblem> {
  const MmaProducts products;
  explicit MmaEngine(MmaProducts p) : products(p) {}
  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string why_not(const MatmulProblem& p, const Device& d) const override {
    if (std::string why = matmul_why_not(p); !why.empty()) return why;
    if (p.ieee) return mma_why_not_ieee(products);
    return mma_why_not(gemm_task(p), d, products);
  }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    return mma_estimate_us(gemm_task(p), d, products);
  }
  std::vector<Config> configs(const MatmulProblem& p, const Device& d) const override {
    return mma_configs(gemm_task(p), d, products);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device&, const Config& config) const override {
    return mma_workspace_bytes(gemm_task(p), products, config);
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d,
                                             const Config& config) const override {
    return make_plan<MatmulProblem>(
        [plan = std::shared_ptr(mma_plan(gemm_task(p), d, products, config))](
            const MatmulArgs& a, void* workspace, Stream stream) { plan->run(gemm_args(a), workspace, stream); });
  }
  std::vector<KernelSpec> kernels() const override { return mma_kernels(products); }
};

}  // namespace minidnn::cuda::matmul
