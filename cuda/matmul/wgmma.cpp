// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.wgmma: the tensor-core main loop of sm_90a (cuda/gemm/sm90.cuh).
#include "cuda/gemm/sm90_host.h"
#include "cuda/matmul/engines.h"

namespace minidnn {
namespace {

struct Wgmma final : Engine<MatmulProblem> {
  std::string name() const override { return "cuda.matmul.wgmma"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const MatmulProblem& p, const Device& d) const override {
    if (std::string why = matmul_why_not(p); !why.empty()) return why;
    if (p.ieee) return "multiplies float32 as TF32, and math='ieee' forbids it";
    if (sizes_of(p).k == 0) return "needs something to sum; K is 0";
    return sm90_why_not(gemm_task(p), d);
  }
  double estimate_us(const MatmulProblem& p, const Device& d) const override { return sm90_estimate_us(gemm_task(p), d); }
  std::vector<Config> configs(const MatmulProblem& p, const Device& d) const override {
    return sm90_configs(gemm_task(p), d);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device&, const Config& config) const override {
    return sm90_workspace_bytes(gemm_task(p), config);
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d,
                                             const Config& config) const override {
    return make_plan<MatmulProblem>(
        [plan = std::shared_ptr(sm90_plan(gemm_task(p), d, config))](const MatmulArgs& a, void* workspace, Stream stream) {
          plan->run(gemm_args(a), workspace, stream);
        });
  }
  std::vector<KernelSpec> kernels() const override { return sm90_kernels(false); }
};

}  // namespace

const Engine<MatmulProblem>& matmul_wgmma() {
  static const Wgmma engine;
  return engine;
}

}  // namespace minidnn
