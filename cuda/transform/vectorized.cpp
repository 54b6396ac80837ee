// SPDX-License-Identifier: Apache-2.0
// cuda.transform.vectorized: an engine for dense tensors x and y with equal strides. Corresponding elements have the
// same offset, so no index arithmetic is needed.
#include "cpp/engine/engine_object.h"
#include "cpp/transform/transform.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::transform {
namespace {

KernelSpec spec(DType to) {
  return {"cuda/transform/vectorized.cu", cat("minidnn::transform_vectorized<", cuda_name(to), ">")};
}

// Each thread copies two chunks, because in a longer loop it would wait for its loads in each iteration. A chunk has as
// many elements as 16 bytes of the shorter dtype.
cuda::LaunchConfig launch_config(const TransformProblem& p, const Device& d) {
  cuda::LaunchConfig config = cuda::elementwise_launch(1, d);
  const int64_t chunk = 16 / int64_t(min_of(itemsize(p.x.dtype), itemsize(p.y.dtype)));
  config.grid = {unsigned(min_of<int64_t>(ceil_div(p.y.numel(), 2 * chunk * int64_t(config.block.x)), INT32_MAX))};
  return config;
}

}  // namespace

struct Vectorized final : Engine<TransformProblem> {
  std::string name() const override { return "cuda.transform.vectorized"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    return is_dense(p.x) && same_strides(p.x, p.y) ? "" : "needs dense tensors with equal strides";
  }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    return roofline_us(0, transform_bytes(p), d, 0.9);
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config&) const override {
    return cuda::kernel_plan(spec(p.y.dtype), p, d, launch_config(p, d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType to : kDTypes) all.push_back(spec(to));
    return all;
  }
};

}  // namespace cuda::transform

template const Engine<TransformProblem>& engine_object<TransformProblem, cuda::transform::Vectorized>();

}  // namespace minidnn
