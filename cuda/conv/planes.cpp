// SPDX-License-Identifier: Apache-2.0
// cuda.conv.planes: true float32 without tensor cores, from planes in shared memory; meant for the few channels of a
// first layer, where a matrix product's tiles would be mostly padding. A depthwise or grouped problem has an engine of
// its own. Floor on an H100 of 3 -> 64 channels, 3x3, 32 x 224 x 224: 137 us to write y, 109 of products at 51 TFLOP/s;
// measured are 224, 343 for dx and 240 for dw.
#include "cuda/conv/engines.h"
#include "cuda/conv/stencil_host.h"

namespace minidnn {
namespace {

// Filters that a thread computes at once, or for dw channels that it meets. A window of seven columns needs the
// registers.
int filters_of(const ConvProblem& p) {
  if (p.direction == ConvDirection::backward_filter) return p.x.shape[1] == 1 ? 1 : 3;
  const int64_t filters = p.direction == ConvDirection::backward_data ? p.x.shape[1] : p.y.shape[1];
  // All nine taps at once; backward_data goes from each of dy to the next.
  const bool nine = p.w.rank == 4 && p.w.shape[2] == 3 && p.w.shape[3] == 3;
  if (filters <= 3 && nine && p.direction == ConvDirection::backward_data) return 3;
  return p.w.shape[p.w.rank - 1] >= 7 || filters <= 4 ? 4 : 8;
}

struct Planes final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.planes"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "db is a sum, without a window";
    if (operand_dtype(p) != DType::float32) return "its kernels are for float32";
    if (p.groups != 1) return cat("groups must be 1, got ", p.groups);
    return stencil_why_not(p, StencilKind::planes, filters_of(p), d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return stencil_estimate_us(p, StencilKind::planes, filters_of(p), d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return stencil_workspace_bytes(p, StencilKind::planes, filters_of(p), d);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return build_stencil(p, StencilKind::planes, filters_of(p), d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (int filters : {1, 3, 4, 8})
      for (KernelSpec& s : stencil_kernels(StencilKind::planes, filters, {DType::float32})) all.push_back(std::move(s));
    return all;
  }
};

}  // namespace

const Engine<ConvProblem>& conv_planes() {
  static const Planes engine;
  return engine;
}

}  // namespace minidnn
