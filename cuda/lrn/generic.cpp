// SPDX-License-Identifier: Apache-2.0
// cuda.lrn.generic is the engine for local response and local contrast norm of tensors with any strides.
#include "cpp/engine/engine_object.h"
#include "cpp/lrn/lrn.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::lrn {
namespace {

KernelSpec spec(DType t, int pass) {
  return {"cuda/lrn/generic.cu", cat("minidnn::lrn_generic<", cuda_name(t), ", ", pass, ">")};
}

}  // namespace

struct Generic final : Engine<LrnProblem> {
  std::string name() const override { return "cuda.lrn.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LrnProblem&, const Device&) const override { return ""; }
  double estimate_us(const LrnProblem& p, const Device& d) const override {
    // The kernel of local norms reaches about 0.05 of the device's peak rates, because its index arithmetic has 64-bit
    // divisions.
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, 0.05);
  }
  size_t workspace_bytes(const LrnProblem& p, const Device&, const Config&) const override {
    return local_norm_workspace(p);
  }
  std::unique_ptr<Plan<LrnProblem>> build(const LrnProblem& p, const Device& d, const Config&) const override {
    const cuda::LaunchConfig config = cuda::elementwise_launch(p.x.numel(), d);
    auto first = cuda::load_kernel(spec(p.x.dtype, p.backward ? 1 : 0), d.place.index);
    std::shared_ptr<const cuda::Kernel> second;
    if (p.backward) second = cuda::load_kernel(spec(p.x.dtype, 2), d.place.index);
    return make_plan<LrnProblem>([=](const LrnArgs& a, void* workspace, Stream stream) {
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

}  // namespace cuda::lrn

template const Engine<LrnProblem>& engine_object<LrnProblem, cuda::lrn::Generic>();

}  // namespace minidnn
