// SPDX-License-Identifier: Apache-2.0
// cuda.softmax.block_per_row: a block per row. cuda.softmax.thread_per_row: a thread per row, for many short rows, or for
// neighbouring rows whose elements are neighbours in memory.
#include <bit>

#include "cuda/runtime/plan.h"
#include "cuda/softmax/engines.h"

namespace minidnn {
namespace {

struct OneKernel : Engine<SoftmaxProblem> {
  const char* const kernel;
  explicit OneKernel(const char* k) : kernel(k) {}
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

// About four elements per thread.
int64_t block_threads(int64_t cols) {
  return std::clamp<int64_t>(int64_t(std::bit_ceil(uint64_t(ceil_div<int64_t>(cols, 4)))), 32, 1024);
}

bool axis_is_innermost(const SoftmaxProblem& p) { return std::abs(p.in.stride[p.axis]) == 1; }

struct Generic final : OneKernel {
  Generic() : OneKernel("softmax_generic") {}
  std::string name() const override { return "cuda.softmax.block_per_row"; }
  cuda::LaunchConfig launch_config(const SoftmaxProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols()), resident = 2048 / threads * d.sm_count;
    cuda::LaunchConfig config;
    config.block = {unsigned(threads)};
    config.grid = {unsigned(min_of(p.rows(), 4 * resident))};
    return config;
  }
  // Guesses: a row costs its block about a microsecond of barriers. Where the axis is strided, an element costs a
  // sector of 32 bytes, half of which serves another row from the L2.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    int64_t threads = block_threads(p.cols());
    double at_once = std::min<double>(double(p.rows()), 2048.0 / double(threads) * d.sm_count);
    double barriers_us = double(p.rows()) / at_once;
    double machine_filled = std::min(1.0, at_once * double(threads) / (1024.0 * d.sm_count));
    double useful = axis_is_innermost(p) ? 0.5 : 0.5 * double(itemsize(p.in.dtype)) / 16;
    return roofline_us(softmax_flop(p), softmax_bytes(p), d, useful * machine_filled) + barriers_us;
  }
};

struct Thread final : OneKernel {
  Thread() : OneKernel("softmax_thread") {}
  std::string name() const override { return "cuda.softmax.thread_per_row"; }
  cuda::LaunchConfig launch_config(const SoftmaxProblem& p, const Device& d) const override {
    return cuda::elementwise_launch(p.rows(), d);
  }
  // Guesses: where neighbouring rows are adjacent in memory, whole sectors are used; where a row is contiguous, only as
  // long as a warp's rows fit the L1. A single thread waits about half a microsecond for each element of its row.
  double estimate_us(const SoftmaxProblem& p, const Device& d) const override {
    double row_bytes = double(p.cols()) * double(itemsize(p.in.dtype));
    double useful = axis_is_innermost(p) ? 0.2 * std::min(1.0, 64 / row_bytes) : 0.5;
    double machine_filled = std::min(1.0, double(p.rows()) / (1024.0 * d.sm_count));
    return std::max(roofline_us(softmax_flop(p), softmax_bytes(p), d, useful * machine_filled), 0.5 * double(p.cols()));
  }
};

}  // namespace

const Engine<SoftmaxProblem>& softmax_generic() {
  static const Generic engine;
  return engine;
}
const Engine<SoftmaxProblem>& softmax_thread() {
  static const Thread engine;
  return engine;
}

}  // namespace minidnn
