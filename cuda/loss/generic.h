// SPDX-License-Identifier: Apache-2.0
// The base class of the engines cuda.loss.block_per_row and cuda.loss.thread_per_row. Each engine runs one kernel of
// generic.cu, for any axis and strides. Only host code includes this file.
#pragma once
#include "cuda/loss/launches.h"

namespace minidnn::cuda::loss {

struct GenericEngine : Engine<LossProblem> {
  const char* const kernel;
  explicit GenericEngine(const char* k) : kernel(k) {}
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LossProblem&, const Device&) const override { return ""; }
  size_t workspace_bytes(const LossProblem& p, const Device& d, const Config&) const override {
    return loss_device_workspace(p, launch_config(p, d).grid.x);
  }
  KernelSpec spec(DType dtype, LossDirection direction) const {
    return {"cuda/loss/generic.cu",
            cat("minidnn::", kernel, "<", cuda_name(dtype), ", (minidnn::LossDirection)", int64_t(direction), ">")};
  }
  virtual cuda::LaunchConfig launch_config(const LossProblem&, const Device&) const = 0;
  std::unique_ptr<Plan<LossProblem>> build(const LossProblem& p, const Device& d, const Config&) const override {
    return loss_plan(spec(p.x.dtype, p.direction), p, d, launch_config(p, d), p);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = loss_total_kernels();
    for (DType t : kFloatingDTypes)
      for (auto direction : {LossDirection::forward, LossDirection::backward}) all.push_back(spec(t, direction));
    return all;
  }
};

inline bool axis_is_innermost(const LossProblem& p) { return std::abs(p.x.stride[p.axis]) == 1; }

}  // namespace minidnn::cuda::loss
