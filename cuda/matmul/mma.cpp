// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.mma: the tensor-core main loop of sm_80 and later (cuda/gemm/mma_gather.cu), any strides.
// cuda.matmul.mma_3xtf32: computes each float32 product as three TF32 products, about as accurate as float32 itself.
#include "cuda/gemm/mma_host.h"
#include "cuda/matmul/engines.h"

namespace minidnn {
namespace {

struct Mma final : Engine<MatmulProblem> {
  MmaProducts products;
  explicit Mma(MmaProducts p) : products(p) {}

  std::string name() const override {
    return products == MmaProducts::three ? "cuda.matmul.mma_3xtf32" : "cuda.matmul.mma";
  }
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

}  // namespace

const Engine<MatmulProblem>& matmul_mma() {
  static const Mma engine(MmaProducts::one);
  return engine;
}
const Engine<MatmulProblem>& matmul_mma_3xtf32() {
  static const Mma engine(MmaProducts::three);
  return engine;
}

}  // namespace minidnn
