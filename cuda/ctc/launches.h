// SPDX-License-Identifier: Apache-2.0
// The launches of a call of the CTC loss.
#pragma once
#include "cpp/ctc/ctc.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::ctc {

constexpr int64_t kMostThreads = 256;  // of a block of generic.cu

// `sums` is the dtype of sums, float32 or float64.
inline KernelSpec generic_spec(const char* kernel, DType sums) {
  return {"cuda/ctc/generic.cu", cat("minidnn::", kernel, "<", cuda_name(sums), ">")};
}

// Launches in their order, each with the parameters (CtcProblem, CtcArgs, workspace).
struct LaunchesPlan final : Plan<CtcProblem> {
  struct Launch {
    std::shared_ptr<const cuda::Kernel> kernel;
    cuda::LaunchConfig config;
  };
  CtcProblem problem;
  std::vector<Launch> launches;

  explicit LaunchesPlan(const CtcProblem& p) : problem(p) {}
  // Adds a launch. All but the first one may start before the launch before them ends.
  void add(const KernelSpec& spec, cuda::LaunchConfig config, const Device& d) {
    if (config.grid.x == 0) return;
    config.programmatic = !launches.empty() && d.arch >= 90;
    launches.push_back({cuda::load_kernel(spec, d.place.index, int(config.smem_bytes)), config});
  }
  // Adds a launch of generic.cu with `blocks` blocks, which may loop, and a thread for each of `size` elements.
  void add_generic(const char* kernel, int64_t blocks, int64_t size, const Device& d) {
    cuda::LaunchConfig config;
    config.block = {unsigned(min_of(round_up(max_of(size, int64_t(1)), 32), kMostThreads))};
    config.grid = {unsigned(min_of(blocks, int64_t(64) * d.sm_count))};
    add(generic_spec(kernel, problem.loss.dtype), config, d);
  }
  // Adds the launch that adds up the losses of all sequences, if they are reduced.
  void add_total(const Device& d) {
    if (problem.reduction != CtcReduction::none) add_generic("ctc_add", 1, problem.batch(), d);
  }
  void run(const CtcArgs& a, void* workspace, Stream stream) const override {
    for (const Launch& l : launches) cuda::launch(*l.kernel, l.config, stream, problem, a, workspace);
  }
};

}  // namespace minidnn::cuda::ctc
