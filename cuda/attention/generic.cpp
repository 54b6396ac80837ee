// SPDX-License-Identifier: Apache-2.0
// cuda.attention.generic: a block of threads computes each row, for all options and any strides. It needs no workspace.
#include "cpp/attention/attention.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::attention {
namespace {

constexpr int64_t kThreads = 128;
constexpr const char* kKernels[] = {"attention_q_rows", "attention_kv_rows", "attention_dbias",
                                    "attention_dbias_by_threads", "attention_dsinks"};

KernelSpec spec(const char* kernel, DType dtype) {
  return {"cuda/attention/generic.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ">")};
}

struct GenericPlan final : Plan<AttentionProblem> {
  struct Launch {
    std::shared_ptr<const cuda::Kernel> kernel;
    cuda::LaunchConfig config;
  };
  AttentionProblem problem;
  std::vector<Launch> launches;

  void add(const char* kernel, int64_t blocks, const Device& d) {
    if (blocks == 0) return;
    Launch l{cuda::load_kernel(spec(kernel, problem.q.dtype), d.place.index), {}};
    l.config.block = {unsigned(kThreads)};
    l.config.grid = {unsigned(min_of(blocks, int64_t(64) * d.sm_count))};
    launches.push_back(std::move(l));
  }
  void run(const AttentionArgs& a, void*, Stream stream) const override {
    for (const Launch& l : launches) cuda::launch(*l.kernel, l.config, stream, problem, a);
  }
};

}  // namespace

struct Generic final : Engine<AttentionProblem> {
  std::string name() const override { return "cuda.attention.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const AttentionProblem&, const Device&) const override { return ""; }
  double estimate_us(const AttentionProblem& p, const Device& d) const override {
    const double rows = double(p.batch() * p.heads() * p.q_size());
    return 3 + roofline_us(2 * attention_flop(p), attention_bytes(p), d, 0.02) /
                   std::clamp(rows / (8.0 * d.sm_count), 0.01, 1.0);
  }
  std::unique_ptr<Plan<AttentionProblem>> build(const AttentionProblem& p, const Device& d,
                                                const Config&) const override {
    auto plan = std::make_unique<GenericPlan>();
    plan->problem = p;
    plan->add(kKernels[0], p.q.numel() / p.head_size(), d);
    if (p.direction != AttentionDirection::backward) return plan;
    plan->add(kKernels[1], p.k.numel() / p.head_size(), d);
    if (p.dbias.rank) {
      const int64_t elements = p.dbias.numel();
      const bool few_terms = elements > 0 && p.batch() * p.heads() * p.q_size() * p.kv_size() / elements < kThreads / 2;
      plan->add(kKernels[few_terms ? 3 : 2], few_terms ? ceil_div(elements, kThreads) : elements, d);
    }
    if (p.has_sink) plan->add(kKernels[4], p.heads(), d);
    return plan;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (const char* kernel : kKernels) all.push_back(spec(kernel, t));
    return all;
  }
};

}  // namespace cuda::attention

template const Engine<AttentionProblem>& engine_object<AttentionProblem, cuda::attention::Generic>();

}  // namespace minidnn
