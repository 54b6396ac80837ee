// SPDX-License-Identifier: Apache-2.0
// cuda.activation.generic is the engine for activations of tensors with any strides. It computes each element's offset
// by 64-bit divisions, which are slow.
#include "cpp/activation/activation.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::activation {
namespace {

KernelSpec spec(DType dtype, bool backward) {
  return {"cuda/activation/generic.cu", cat("minidnn::activation_generic<", cuda_name(dtype), ", ", backward, ">")};
}

}  // namespace

struct Generic final : Engine<ActivationProblem> {
  std::string name() const override { return "cuda.activation.generic"; }
  int revision() const override { return 2; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ActivationProblem&, const Device&) const override { return ""; }
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<ActivationProblem>> build(const ActivationProblem& p, const Device& d,
                                                 const Config&) const override {
    return cuda::kernel_plan(spec(p.x.dtype, p.direction == ActivationDirection::backward), p, d,
                             cuda::elementwise_launch(p.out.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (bool backward : {false, true}) all.push_back(spec(t, backward));
    return all;
  }
};

}  // namespace cuda::activation

template const Engine<ActivationProblem>& engine_object<ActivationProblem, cuda::activation::Generic>();

}  // namespace minidnn
