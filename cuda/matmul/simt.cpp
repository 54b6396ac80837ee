// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.simt: an engine for float32 products by float32 multiply-adds, without tensor cores
// (cuda/gemm/simt/kernel.cu).
#include "cpp/engine/engine_object.h"
#include "cuda/gemm/simt/plan.h"

namespace minidnn {
namespace cuda::matmul {

struct Simt final : Engine<MatmulProblem> {
  std::string name() const override { return "cuda.matmul.simt"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const MatmulProblem& p, const Device&) const override {
    if (std::string why = matmul_why_not(p); !why.empty()) return why;
    return simt_why_not(gemm_task(p));
  }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    return simt_estimate_us(gemm_task(p), d);
  }
  std::vector<Config> configs(const MatmulProblem& p, const Device& d) const override {
    return simt_configs(gemm_task(p), d);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device&, const Config& config) const override {
    return simt_workspace_bytes(gemm_task(p), config);
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d,
                                             const Config& config) const override {
    return make_plan<MatmulProblem>(
        [plan = std::shared_ptr(simt_plan(gemm_task(p), d, config))](
            const MatmulArgs& a, void* workspace, Stream stream) { plan->run(gemm_args(a), workspace, stream); });
  }
  std::vector<KernelSpec> kernels() const override { return simt_kernels(); }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Simt>();

}  // namespace minidnn
