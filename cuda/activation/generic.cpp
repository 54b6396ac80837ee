// SPDX-License-Identifier: Apache-2.0
// cuda.activation.generic (any strides) and cuda.activation.dense (no index arithmetic).
#include "cuda/activation/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

KernelSpec spec(const char* kernel, DType dtype, Activation mode, ActivationDirection direction) {
  return {"cuda/activation/generic.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ", (minidnn::Activation)",
                                            int64_t(mode), ", ", direction == ActivationDirection::backward, ">")};
}

struct OneKernel : Engine<ActivationProblem> {
  const char* const kernel;
  explicit OneKernel(const char* k) : kernel(k) {}
  unsigned traits() const override { return kNeedsJit; }
  std::unique_ptr<Plan<ActivationProblem>> build(const ActivationProblem& p, const Device& d,
                                                 const Config&) const override {
    return cuda::kernel_plan(spec(kernel, p.x.dtype, p.mode, p.direction), p, d,
                             cuda::elementwise_launch(p.out.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (int mode = 0; mode < kActivations; ++mode)
        for (auto direction : {ActivationDirection::forward, ActivationDirection::backward})
          all.push_back(spec(kernel, t, Activation(mode), direction));
    return all;
  }
};

struct Generic final : OneKernel {
  Generic() : OneKernel("activation_generic") {}
  std::string name() const override { return "cuda.activation.generic"; }
  std::string why_not(const ActivationProblem&, const Device&) const override { return ""; }
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, 0.1);  // 64-bit divisions per dimension
  }
};

struct Dense final : OneKernel {
  Dense() : OneKernel("activation_dense") {}
  std::string name() const override { return "cuda.activation.dense"; }
  std::string why_not(const ActivationProblem& p, const Device&) const override {
    bool backward = p.direction == ActivationDirection::backward;
    bool dense = is_dense(p.x) && same_strides(p.x, p.out) && (!backward || same_strides(p.x, p.dy));
    return dense ? "" : "needs tensors without gaps and with equal strides";
  }
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, 0.7);
  }
};

}  // namespace

const Engine<ActivationProblem>& activation_generic() {
  static const Generic engine;
  return engine;
}
const Engine<ActivationProblem>& activation_dense() {
  static const Dense engine;
  return engine;
}

}  // namespace minidnn
