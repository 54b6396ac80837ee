// SPDX-License-Identifier: Apache-2.0
// cuda.ctc.wavefront: a block computes each sequence, with its states in registers; its warps follow each other through
// the steps.
#include "cuda/ctc/launches.h"
#include "cuda/ctc/wavefront_params.h"

namespace minidnn {
namespace cuda::ctc {
namespace {

KernelSpec wavefront_spec(const char* kernel, DType dtype) {
  return {"cuda/ctc/wavefront.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ">")};
}
KernelSpec rows_spec(const char* kernel, DType dtype) {
  return {"cuda/ctc/rows.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ">")};
}
// The launch of a kernel of rows.cu, with `lanes` threads for each row.
cuda::LaunchConfig rows_launch(const CtcProblem& p, int64_t lanes) {
  cuda::LaunchConfig config;
  config.block = {unsigned(lanes), unsigned(256 / lanes)};
  const int64_t blocks = ceil_div(p.steps() * p.batch(), int64_t(config.block.y));
  config.grid = {unsigned(min_of(blocks, int64_t(INT32_MAX)))};
  return config;
}
int64_t lanes_of_lse(const CtcProblem& p, const Device& d) {
  if (p.classes() <= 128) return 8;
  return p.classes() >= 1024 && p.steps() * p.batch() < 16 * int64_t(d.sm_count) ? 256 : 32;
}
}  // namespace

struct Wavefront final : Engine<CtcProblem> {
  std::string name() const override { return "cuda.ctc.wavefront"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const CtcProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.batch() > INT32_MAX) return cat("needs at most 2^31 - 1 sequences; there are ", p.batch());
    if (p.steps() > 1 << 30) return cat("needs at most 2^30 steps; there are ", p.steps());
    if (p.longest() > 1 << 27) return cat("needs at most 2^27 labels; there are ", p.longest());
    const int64_t step_bytes = p.x.stride[0] * itemsize(p.x.dtype);
    if (step_bytes > INT32_MAX || step_bytes < -INT32_MAX)
      return cat("needs steps of x that are at most 2^31 - 1 bytes apart; they are ", step_bytes);
    if (p.classes() > INT32_MAX) return cat("needs at most 2^31 - 1 classes; there are ", p.classes());
    return "";
  }
  // A step takes about 0.1 us, or 0.0185 us for each warp of a multiprocessor if there are many (docs/notes/ctc.md).
  double estimate_us(const CtcProblem& p, const Device& d) const override {
    const bool backward = p.direction == CtcDirection::backward;
    const double usual = double(p.concatenated() ? p.all_labels() / max_of(p.batch(), int64_t(1)) : p.longest());
    const double all_warps = std::floor(usual / 32) + 1, strips = std::ceil(all_warps / kCtcMostWarps);
    const double warps = std::min(all_warps, double(kCtcMostWarps)) * std::ceil(double(p.batch()) / d.sm_count);
    const double step = strips * std::max(0.1, 0.0185 * warps);
    return 6 + double(p.steps()) * step + roofline_us(0, ctc_bytes(p), d, backward ? 0.5 : 0.9);
  }
  size_t workspace_bytes(const CtcProblem& p, const Device&, const Config&) const override {
    return size_t(CtcWorkspace::bytes(p));
  }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device& d, const Config&) const override {
    auto plan = std::make_unique<LaunchesPlan>(p);
    cuda::LaunchConfig sequences;
    sequences.block = {unsigned(ctc_threads(p))};
    sequences.grid = {unsigned(p.batch())};
    if (p.direction == CtcDirection::backward) {
      plan->add(wavefront_spec("ctc_beta", p.x.dtype), sequences, d);
      plan->add(rows_spec("ctc_dx_rows", p.x.dtype), rows_launch(p, 32), d);
      return plan;
    }
    if (p.logits) plan->add(rows_spec("ctc_lse_rows", p.x.dtype), rows_launch(p, lanes_of_lse(p, d)), d);
    plan->add(wavefront_spec("ctc_alpha", p.x.dtype), sequences, d);
    plan->add_total(d);
    return plan;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{generic_spec("ctc_add", DType::float32)};
    for (DType t : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const char* kernel : {"ctc_alpha", "ctc_beta"}) all.push_back(wavefront_spec(kernel, t));
      for (const char* kernel : {"ctc_lse_rows", "ctc_dx_rows"}) all.push_back(rows_spec(kernel, t));
    }
    return all;
  }
};

}  // namespace cuda::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cuda::ctc::Wavefront>();

}  // namespace minidnn
