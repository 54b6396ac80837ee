// SPDX-License-Identifier: Apache-2.0
// cuda.rnn.generic: a launch for each step, with a thread for each unit. For all options and any strides.
#include "cuda/rnn/generic.h"

#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::rnn {
namespace {

constexpr const char* kPasses[] = {
    "begin",      "drop",           "clear_unused",   "forward_unit",   "forward_candidate",
    "last_state", "backward_units", "backward_reset", "input_gradient", "weight_gradient"};
static_assert(std::size(kPasses) == kRnnPasses);

KernelSpec spec(size_t pass, DType dtype) {
  return {"cuda/rnn/generic.cu",
          cat("minidnn::rnn_pass<", cuda_name(dtype), ", minidnn::RnnPass::", kPasses[pass], ">")};
}

// Whether a call makes the pass.
bool needs(const RnnProblem& p, RnnPass pass) {
  const bool forward = p.direction == RnnDirection::forward, data = p.direction == RnnDirection::backward_data;
  switch (pass) {
    case RnnPass::begin:
      return true;
    case RnnPass::drop:
      return p.has_dropout && p.layers > 1 && !data;
    case RnnPass::clear_unused:
      return p.packed && (forward || data);
    case RnnPass::forward_candidate:
      return forward && p.reset_before;
    case RnnPass::backward_reset:
      return data && p.reset_before;
    case RnnPass::forward_unit:
    case RnnPass::last_state:
      return forward;
    case RnnPass::backward_units:
    case RnnPass::input_gradient:
      return data;
    default:
      return p.direction == RnnDirection::backward_weights;
  }
}

}  // namespace

GenericPasses::GenericPasses(const RnnProblem& p, const Device& d, bool (*wanted)(RnnPass))
    : problem_(p), most_blocks_(int64_t(32) * d.sm_count) {
  for (size_t i = 0; i < kRnnPasses; ++i)
    if (needs(p, RnnPass(i)) && wanted(RnnPass(i))) kernels_[i] = load_kernel(spec(i, p.x.dtype), d.place.index);
}
void GenericPasses::launch(RnnPass pass, const RnnLayer& l, int64_t step, int64_t items, Stream stream) const {
  constexpr int64_t kThreads = 128;
  LaunchConfig config;
  config.block = {unsigned(kThreads)};
  config.grid = {unsigned(min_of(ceil_div(items, kThreads), most_blocks_))};
  cuda::launch(*kernels_[size_t(pass)], config, stream, problem_, l, step, items);
}

struct Generic final : Engine<RnnProblem> {
  std::string name() const override { return "cuda.rnn.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RnnProblem&, const Device&) const override { return ""; }
  double estimate_us(const RnnProblem& p, const Device& d) const override {
    const bool has_steps = p.direction != RnnDirection::backward_weights;
    const double launches = double(p.layers) * (has_steps ? double(p.steps) * (p.reset_before ? 2 : 1) : 1);
    return 3 * launches + roofline_us(rnn_flop(p), rnn_bytes(p), d, 0.02);
  }
  size_t workspace_bytes(const RnnProblem& p, const Device&, const Config&) const override {
    return rnn_workspace_bytes(p);
  }
  std::unique_ptr<Plan<RnnProblem>> build(const RnnProblem& p, const Device& d, const Config&) const override {
    const auto all = [](RnnPass) { return true; };
    return make_plan<RnnProblem>(
        [p, passes = GenericPasses(p, d, all)](const RnnArgs& a, void* workspace, Stream stream) {
          run_rnn_passes(p, a, workspace, 1, [&](RnnPass pass, const RnnLayer& l, int64_t step, int64_t items) {
            passes.launch(pass, l, step, items, stream);
          });
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (size_t i = 0; i < kRnnPasses; ++i) all.push_back(spec(i, t));
    return all;
  }
};

}  // namespace cuda::rnn

template const Engine<RnnProblem>& engine_object<RnnProblem, cuda::rnn::Generic>();

}  // namespace minidnn
