// SPDX-License-Identifier: Apache-2.0
// cuda.loss.block_per_row: a block per row. cuda.loss.thread_per_row: a thread per row, for few classes, or for neighbouring rows
// whose elements are neighbours in memory.
#include <bit>

#include "cuda/loss/engines.h"
#include "cuda/loss/plan.h"

namespace minidnn {
namespace {

struct OneKernel : Engine<LossProblem> {
  const char* const kernel;
  explicit OneKernel(const char* k) : kernel(k) {}
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

// About four elements per thread.
int64_t block_threads(int64_t cols) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(cols, 4)))), 32, 1024);
}
bool axis_is_innermost(const LossProblem& p) { return std::abs(p.x.stride[p.axis]) == 1; }

// The estimates are guesses, like those of softmax.
struct Generic final : OneKernel {
  Generic() : OneKernel("loss_generic") {}
  std::string name() const override { return "cuda.loss.block_per_row"; }
  cuda::LaunchConfig launch_config(const LossProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols()), resident = 2048 / threads * d.sm_count;
    cuda::LaunchConfig config;
    config.block = {unsigned(threads)};
    config.grid = {unsigned(min_of(p.rows(), 4 * resident))};
    return config;
  }
  double estimate_us(const LossProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols());
    double at_once = std::min<double>(double(std::max<int64_t>(p.rows(), 1)), 2048.0 / double(threads) * d.sm_count);
    double machine_filled = std::min(1.0, at_once * double(threads) / (1024.0 * d.sm_count));
    double useful = axis_is_innermost(p) ? 0.5 : 0.5 * double(itemsize(p.x.dtype)) / 16;
    return 3 + roofline_us(loss_flop(p), loss_bytes(p), d, useful * machine_filled) + double(p.rows()) / at_once;
  }
};

struct Thread final : OneKernel {
  Thread() : OneKernel("loss_thread") {}
  std::string name() const override { return "cuda.loss.thread_per_row"; }
  cuda::LaunchConfig launch_config(const LossProblem& p, const Device& d) const override {
    return cuda::elementwise_launch(p.rows(), d);
  }
  double estimate_us(const LossProblem& p, const Device& d) const override {
    double row_bytes = double(p.cols()) * double(itemsize(p.x.dtype));
    double useful = axis_is_innermost(p) ? 0.5 * std::min(1.0, 64 / row_bytes) : 0.5;
    double machine_filled = std::clamp(double(p.rows()) / (1024.0 * d.sm_count), 1e-4, 1.0);
    return 3 + std::max(roofline_us(loss_flop(p), loss_bytes(p), d, useful * machine_filled), 0.3 * double(p.cols()));
  }
};

}  // namespace

const Engine<LossProblem>& loss_generic() {
  static const Generic engine;
  return engine;
}
const Engine<LossProblem>& loss_thread() {
  static const Thread engine;
  return engine;
}

}  // namespace minidnn
