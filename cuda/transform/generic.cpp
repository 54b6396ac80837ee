// SPDX-License-Identifier: Apache-2.0
// cuda.transform.generic: an engine for any strides. Each thread computes one element of y at a time.
#include "cpp/engine/engine_object.h"
#include "cpp/transform/transform.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::transform {
namespace {

KernelSpec spec(DType to) {
  return {"cuda/transform/generic.cu", cat("minidnn::transform_generic<", cuda_name(to), ">")};
}

}  // namespace

struct Generic final : Engine<TransformProblem> {
  std::string name() const override { return "cuda.transform.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const TransformProblem&, const Device&) const override { return ""; }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    // The kernel computes a 64-bit division per element and dimension.
    return roofline_us(0, transform_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config&) const override {
    return cuda::kernel_plan(spec(p.y.dtype), p, d, cuda::elementwise_launch(p.y.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType to : kDTypes) all.push_back(spec(to));
    return all;
  }
};

}  // namespace cuda::transform

template const Engine<TransformProblem>& engine_object<TransformProblem, cuda::transform::Generic>();

}  // namespace minidnn
