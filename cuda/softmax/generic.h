// SPDX-License-Identifier: Apache-2.0
// The base class of the engines cuda.softmax.block_per_row and cuda.softmax.thread_per_row. Each engine runs one kernel
// of generic.cu, for any axis and strides. Only host code includes this file.
#pragma once
#include "cpp/engine/engine_object.h"
#include "cpp/softmax/softmax.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::softmax {

struct GenericEngine : Engine<SoftmaxProblem> {
  const char* const kernel;
  explicit GenericEngine(const char* k) : kernel(k) {}
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const SoftmaxProblem&, const Device&) const override { return ""; }
  KernelSpec spec(DType dtype, SoftmaxDirection direction, bool log) const {
    return {"cuda/softmax/generic.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ", (minidnn::SoftmaxDirection)",
                                           int64_t(direction), ", ", log, ">")};
  }
  virtual cuda::LaunchConfig launch_config(const SoftmaxProblem&, const Device&) const = 0;
  std::unique_ptr<Plan<SoftmaxProblem>> build(const SoftmaxProblem& p, const Device& d, const Config&) const override {
    return cuda::kernel_plan(spec(p.in.dtype, p.direction, p.log), p, d, launch_config(p, d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (auto direction : {SoftmaxDirection::forward, SoftmaxDirection::backward})
        for (bool log : {false, true}) all.push_back(spec(t, direction, log));
    return all;
  }
};

inline bool axis_is_innermost(const SoftmaxProblem& p) { return std::abs(p.in.stride[p.axis]) == 1; }

}  // namespace minidnn::cuda::softmax
