// SPDX-License-Identifier: Apache-2.0
// cuda.pad.generic: an engine for any strides. Each thread computes one element of y at a time.
#include "cpp/engine/engine_object.h"
#include "cpp/pad/pad.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pad {
namespace {

KernelSpec spec(int64_t item) { return {"cuda/pad/generic.cu", cat("minidnn::pad_generic<uint", 8 * item, "_t>")}; }

}  // namespace

struct Generic final : Engine<PadProblem> {
  std::string name() const override { return "cuda.pad.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PadProblem&, const Device&) const override { return ""; }
  double estimate_us(const PadProblem& p, const Device& d) const override {
    // The kernel computes a 64-bit division per element and dimension.
    return roofline_us(0, pad_bytes(p), d, 0.1);
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device& d, const Config&) const override {
    return cuda::kernel_plan(spec(int64_t(itemsize(p.x.dtype))), p, d, cuda::elementwise_launch(p.y.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override { return {spec(1), spec(2), spec(4), spec(8)}; }
};

}  // namespace cuda::pad

template const Engine<PadProblem>& engine_object<PadProblem, cuda::pad::Generic>();

}  // namespace minidnn
