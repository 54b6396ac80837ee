// SPDX-License-Identifier: Apache-2.0
// cuda.pooling.generic is the engine for pooling with any strides and windows. A thread computes one element.
#include "cpp/engine/engine_object.h"
#include "cpp/pooling/pooling.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pooling {
namespace {

KernelSpec spec(DType dtype, PoolingMode mode, PoolingDirection direction) {
  const char* kernel = direction == PoolingDirection::forward ? "pooling_forward" : "pooling_backward";
  return {"cuda/pooling/generic.cu",
          cat("minidnn::", kernel, "<", cuda_name(dtype), ", (minidnn::PoolingMode)", int64_t(mode), ">")};
}

}  // namespace

struct Generic final : Engine<PoolingProblem> {
  std::string name() const override { return "cuda.pooling.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PoolingProblem&, const Device&) const override { return ""; }
  double estimate_us(const PoolingProblem& p, const Device& d) const override {
    // The kernel of pooling reaches about 0.2 of the device's peak rates, because of its 64-bit index arithmetic.
    return roofline_us(pooling_flop(p), pooling_bytes(p), d, 0.2);
  }
  std::unique_ptr<Plan<PoolingProblem>> build(const PoolingProblem& p, const Device& d, const Config&) const override {
    return cuda::kernel_plan(spec(p.x.dtype, p.mode, p.direction), p, d, cuda::elementwise_launch(p.out.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (auto mode : {PoolingMode::max, PoolingMode::avg, PoolingMode::avg_exclude_padding, PoolingMode::lp})
        for (auto direction : {PoolingDirection::forward, PoolingDirection::backward})
          all.push_back(spec(t, mode, direction));
    return all;
  }
};

}  // namespace cuda::pooling

template const Engine<PoolingProblem>& engine_object<PoolingProblem, cuda::pooling::Generic>();

}  // namespace minidnn
