// SPDX-License-Identifier: Apache-2.0
// cuda.conv.direct_nchw: an engine that computes in float32 without tensor cores (nchw.cu). It is meant for the first
// layer of a network: its x has so few channels that the tiles of a matrix product would be mostly padding. The engine
// supports groups = 1 only.
// Times on an H100 for 3 -> 64 channels, 3x3, 32 images of 224 x 224: 224 us for y, 343 us for dx, 240 us for dw. To
// write y takes at least 137 us; the multiply-adds take at least 109 us at 51 TFLOP/s.
#include "cpp/engine/engine_object.h"
#include "cuda/conv/depthwise/group_conv.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// Returns the template argument kFilters (y, dx) or kChannels (dw): the number of filters or channels per thread. Wide
// windows get 4 filters instead of 8, because they need many registers.
int filters_of(const ConvProblem& p) {
  if (p.direction == ConvDirection::backward_filter) return p.x.shape[1] == 1 ? 1 : 3;
  const int64_t filters = p.direction == ConvDirection::backward_data ? p.x.shape[1] : p.y.shape[1];
  // The kernel with kFilters = 3 keeps all nine weights in registers. It supports stride 1 only, so it is for dx, which
  // has stride 1 over the upsampled dy.
  const bool nine = p.w.rank == 4 && p.w.shape[2] == 3 && p.w.shape[3] == 3;
  if (filters <= 3 && nine && p.direction == ConvDirection::backward_data) return 3;
  return p.w.shape[p.w.rank - 1] >= 7 || filters <= 4 ? 4 : 8;
}

}  // namespace

struct DirectNchw final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.direct_nchw"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) != DType::float32) return cat("supports float32 only; got ", minidnn::name(operand_dtype(p)));
    if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
    return group_conv_why_not(p, GroupConvLayout::nchw, filters_of(p), d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return group_conv_estimate_us(p, GroupConvLayout::nchw, filters_of(p), d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return group_conv_workspace_bytes(p, GroupConvLayout::nchw, filters_of(p), d);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return build_group_conv(p, GroupConvLayout::nchw, filters_of(p), d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (int filters : {1, 3, 4, 8})
      for (KernelSpec& s : group_conv_kernels(GroupConvLayout::nchw, filters, {DType::float32}))
        all.push_back(std::move(s));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::DirectNchw>();

}  // namespace minidnn
