// SPDX-License-Identifier: Apache-2.0
// cuda.ctc.warp: a warp computes each sequence, with its states in registers.
#include "cuda/ctc/launches.h"

namespace minidnn {
namespace cuda::ctc {
namespace {

constexpr int64_t kOwn[] = {1, 2, 4, 8};  // the labels of a lane
constexpr int64_t kMostLabels = 255;

// `own` is one of kOwn, or 0 for longer sequences.
KernelSpec warp_spec(CtcDirection direction, DType dtype, int64_t own) {
  const char* const kernel = direction == CtcDirection::forward ? "ctc_warp_forward" : "ctc_warp_backward";
  return {"cuda/ctc/warp.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ", ", own, ">")};
}
// The kernels of a call. The lengths of concatenated targets are on the device, so sequences may belong to any of them.
std::vector<KernelSpec> specs_of(const CtcProblem& p) {
  std::vector<KernelSpec> all;
  for (int64_t own : kOwn) {
    const bool fits = p.longest() < 32 * own;
    if (p.concatenated() || fits) all.push_back(warp_spec(p.direction, p.x.dtype, own));
    if (fits) return all;
  }
  all.push_back(warp_spec(p.direction, p.x.dtype, 0));
  return all;
}

}  // namespace

struct Warp final : Engine<CtcProblem> {
  std::string name() const override { return "cuda.ctc.warp"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const CtcProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (!p.concatenated() && p.longest() > kMostLabels)
      return cat("needs at most ", kMostLabels, " labels of a sequence; targets have up to ", p.longest());
    return p.batch() > INT32_MAX ? cat("needs at most 2^31 - 1 sequences; there are ", p.batch()) : "";
  }
  // A step takes 100 to 400 clocks, in which the sums wait for each other. Longer sequences leave the registers.
  double estimate_us(const CtcProblem& p, const Device& d) const override {
    const bool backward = p.direction == CtcDirection::backward;
    const int64_t usual = p.concatenated() ? p.all_labels() / max_of(p.batch(), int64_t(1)) : p.longest();
    const double own = double(usual + 32) / 32, turns = std::ceil(double(p.batch()) / (8.0 * d.sm_count));
    const double step = (usual < 256 ? 0.06 + 0.03 * own : 1.5 * own) * (backward ? 2 : 1);
    return 6 + double(p.steps()) * turns * step + roofline_us(0, ctc_bytes(p), d, 0.5);
  }
  size_t workspace_bytes(const CtcProblem& p, const Device&, const Config&) const override { return ctc_workspace(p); }
  std::unique_ptr<Plan<CtcProblem>> build(const CtcProblem& p, const Device& d, const Config&) const override {
    return ctc_plan(p, d, specs_of(p), p.batch(), 32);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (auto direction : {CtcDirection::forward, CtcDirection::backward})
        for (int64_t own : {0, 1, 2, 4, 8}) all.push_back(warp_spec(direction, t, own));
    for (const char* kernel : {"ctc_lse", "ctc_add", "ctc_gradients", "ctc_rows"})
      all.push_back(generic_spec(kernel, DType::float32));
    return all;
  }
};

}  // namespace cuda::ctc

template const Engine<CtcProblem>& engine_object<CtcProblem, cuda::ctc::Warp>();

}  // namespace minidnn
