// SPDX-License-Identifier: Apache-2.0
// cuda.conv.grouped: an engine for convolutions with groups of a few channels, as in ResNeXt. It does not use tensor
// cores, because one group would fill at most half of a tile of a matrix product on tensor cores.
// Kernels for contiguous channels (NHWC): nhwc_3x3.cu for groups of 4 channels with 3x3 windows at stride 1, and
// nhwc.cu for other windows and for groups of 8 or 16 channels (in 16 bits also 32). nchw.cu computes all other
// convolutions.
// Times on an H100 for 64 images, 3x3, 32 groups of 4 channels of 56 x 56: 75 us in bfloat16, 155 us in float32. The
// multiply-adds take at least 36 us at 51 TFLOP/s. Memory traffic takes at least 34 us in bfloat16 and 69 us in
// float32.
#include "cpp/engine/engine_object.h"
#include "cuda/conv/depthwise/group_conv.h"
#include "cuda/conv/depthwise/nhwc/nhwc_params.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// A template argument of the nchw kernels: the number of filters per thread or, for dw, of channels per thread.
constexpr int kFilters = 4;

GroupConvLayout layout_of(const ConvProblem& p, const Device& d) {
  const int64_t channels = p.x.shape[1] / p.groups, slice = kSliceBytes / int64_t(itemsize(operand_dtype(p)));
  const bool pixels = p.x.stride[1] == 1 && p.y.stride[1] == 1 && p.x.shape[1] == p.y.shape[1] && channels % 4 == 0 &&
                      slice % channels == 0 && group_conv_why_not(p, GroupConvLayout::nhwc_groups, kFilters, d).empty();
  return pixels ? GroupConvLayout::nhwc_groups : GroupConvLayout::nchw;
}

}  // namespace

struct Grouped final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.grouped"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.groups == 1) return "needs groups > 1; got 1";
    if (p.x.shape[1] == 0 || p.y.shape[1] == 0) return "x or y has no channels";
    return group_conv_why_not(p, layout_of(p, d), kFilters, d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return group_conv_estimate_us(p, layout_of(p, d), kFilters, d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return group_conv_workspace_bytes(p, layout_of(p, d), kFilters, d);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return build_group_conv(p, layout_of(p, d), kFilters, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (GroupConvLayout layout : {GroupConvLayout::nhwc_groups, GroupConvLayout::nchw})
      for (KernelSpec& s : group_conv_kernels(layout, kFilters, {DType::float32, DType::float16, DType::bfloat16}))
        all.push_back(std::move(s));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Grouped>();

}  // namespace minidnn
