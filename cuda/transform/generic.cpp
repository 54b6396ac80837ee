// SPDX-License-Identifier: Apache-2.0
// cuda.transform.generic (any strides) and cuda.transform.vectorized (no index arithmetic).
#include "cuda/runtime/plan.h"
#include "cuda/transform/engines.h"

namespace minidnn {
namespace {

struct OneKernel : Engine<TransformProblem> {
  const char* const kernel;
  explicit OneKernel(const char* k) : kernel(k) {}
  unsigned traits() const override { return kNeedsJit; }
  KernelSpec spec(DType to) const {
    return {"cuda/transform/generic.cu", cat("minidnn::", kernel, "<", cuda_name(to), ">")};
  }
  std::unique_ptr<Plan<TransformProblem>> build(const TransformProblem& p, const Device& d,
                                                const Config&) const override {
    return cuda::kernel_plan(spec(p.y.dtype), p, d, launch_of(p, d));
  }
  virtual cuda::LaunchConfig launch_of(const TransformProblem& p, const Device& d) const {
    return cuda::elementwise_launch(p.y.numel(), d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType to : kDTypes) all.push_back(spec(to));
    return all;
  }
};

struct Generic final : OneKernel {
  Generic() : OneKernel("transform_generic") {}
  std::string name() const override { return "cuda.transform.generic"; }
  std::string why_not(const TransformProblem&, const Device&) const override { return ""; }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    return roofline_us(0, transform_bytes(p), d, 0.1);  // 64-bit divisions per dimension
  }
};

struct Dense final : OneKernel {
  Dense() : OneKernel("transform_dense") {}
  std::string name() const override { return "cuda.transform.vectorized"; }
  std::string why_not(const TransformProblem& p, const Device&) const override {
    return is_dense(p.x) && same_strides(p.x, p.y) ? "" : "needs dense tensors with equal strides";
  }
  double estimate_us(const TransformProblem& p, const Device& d) const override {
    return roofline_us(0, transform_bytes(p), d, 0.9);
  }
  // Two pieces a thread: a grid-stride loop would wait for its loads in each iteration. A piece is 16 bytes of the
  // shorter dtype.
  cuda::LaunchConfig launch_of(const TransformProblem& p, const Device& d) const override {
    cuda::LaunchConfig config = cuda::elementwise_launch(1, d);
    const int64_t piece = 16 / int64_t(min_of(itemsize(p.x.dtype), itemsize(p.y.dtype)));
    config.grid = {unsigned(min_of<int64_t>(ceil_div(p.y.numel(), 2 * piece * int64_t(config.block.x)), INT32_MAX))};
    return config;
  }
};

}  // namespace

const Engine<TransformProblem>& transform_generic() {
  static const Generic engine;
  return engine;
}
const Engine<TransformProblem>& transform_dense() {
  static const Dense engine;
  return engine;
}

}  // namespace minidnn
