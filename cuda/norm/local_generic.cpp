// SPDX-License-Identifier: Apache-2.0
// cuda.norm.local_generic: local response and local contrast norm over any strides.
#include "cuda/norm/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

KernelSpec spec(DType t, int pass) {
  return {"cuda/norm/local_generic.cu", cat("minidnn::local_norm_generic<", cuda_name(t), ", ", pass, ">")};
}

struct Generic final : Engine<LocalNormProblem> {
  std::string name() const override { return "cuda.norm.local_generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LocalNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, 0.05);  // 64-bit divisions
  }
  size_t workspace_bytes(const LocalNormProblem& p, const Device&, const Config&) const override {
    return local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device& d,
                                                const Config&) const override {
    const cuda::LaunchConfig config = cuda::elementwise_launch(p.x.numel(), d);
    auto first = cuda::load_kernel(spec(p.x.dtype, p.backward ? 1 : 0), d.place.index);
    std::shared_ptr<const cuda::Kernel> second;
    if (p.backward) second = cuda::load_kernel(spec(p.x.dtype, 2), d.place.index);
    return make_plan<LocalNormProblem>([=](const LocalNormArgs& a, void* workspace, Stream stream) {
      cuda::launch(*first, config, stream, p, a, workspace);
      if (second) cuda::launch(*second, config, stream, p, a, workspace);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (int pass : {0, 1, 2}) all.push_back(spec(t, pass));
    return all;
  }
};

}  // namespace

const Engine<LocalNormProblem>& norm_local_generic() {
  static const Generic engine;
  return engine;
}

}  // namespace minidnn
