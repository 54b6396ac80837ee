// SPDX-License-Identifier: Apache-2.0
// The launches of a call of the CTC loss. The CUDA engines of ctc differ in the kernel that computes the sequences.
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

// Launches in their order, each with the parameters (CtcProblem, CtcArgs, pointer). The pointer is the address of the
// losses of all sequences (forward), or of their gradients (backward), and of the scratch memory behind these.
struct LaunchesPlan final : Plan<CtcProblem> {
  struct Launch {
    std::shared_ptr<const cuda::Kernel> kernel;
    cuda::LaunchConfig config;
  };
  CtcProblem problem;
  std::vector<Launch> launches;

  // Adds a launch of `blocks` blocks, at most `most`, with a thread for each of `size` elements, at most kMostThreads.
  void add(const KernelSpec& spec, int64_t blocks, int64_t most, int64_t size, const Device& d) {
    if (blocks == 0) return;
    Launch l{cuda::load_kernel(spec, d.place.index), {}};
    l.config.block = {unsigned(min_of(round_up(max_of(size, int64_t(1)), 32), kMostThreads))};
    l.config.grid = {unsigned(min_of(blocks, most))};
    launches.push_back(std::move(l));
  }
  void run(const CtcArgs& a, void* workspace, Stream stream) const override {
    const bool own = problem.direction == CtcDirection::forward && problem.reduction == CtcReduction::none;
    void* const numbers = own ? a.loss : workspace;
    for (const Launch& l : launches) cuda::launch(*l.kernel, l.config, stream, problem, a, numbers);
  }
};

// The plan of an engine whose kernels `sequences` have a block of `threads` threads for each sequence, at most `most`
// blocks.
inline std::unique_ptr<Plan<CtcProblem>> ctc_plan(const CtcProblem& p, const Device& d,
                                                  const std::vector<KernelSpec>& sequences, int64_t most,
                                                  int64_t threads) {
  auto plan = std::make_unique<LaunchesPlan>();
  plan->problem = p;
  const int64_t rows = p.steps() * p.batch(), enough = int64_t(64) * d.sm_count;
  const auto add = [&](const char* kernel, int64_t blocks, int64_t size) {
    plan->add(generic_spec(kernel, p.loss.dtype), blocks, enough, size, d);
  };
  const bool backward = p.direction == CtcDirection::backward;
  if (backward) {
    add("ctc_gradients", p.batch(), p.longest());
    add("ctc_rows", rows, p.classes());
  } else if (p.logits) {
    add("ctc_lse", rows, p.classes());
  }
  for (const KernelSpec& k : sequences) plan->add(k, p.batch(), most, threads, d);
  if (!backward && p.reduction != CtcReduction::none) add("ctc_add", 1, p.batch());
  return plan;
}
inline size_t ctc_workspace(const CtcProblem& p) {
  const bool wide = p.x.dtype == DType::float64;
  const int64_t scratch = wide ? CtcScratch<double>::bytes(p) : CtcScratch<float>::bytes(p);
  return size_t(p.batch() * itemsize(p.loss.dtype) + (p.direction == CtcDirection::backward ? scratch : 0));
}

}  // namespace minidnn::cuda::ctc
