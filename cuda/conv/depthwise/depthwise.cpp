// SPDX-License-Identifier: Apache-2.0
// cuda.conv.depthwise: an engine for depthwise convolutions. Every channel of x is a group, with one filter or several.
// x may have a single channel.
// Kernels for contiguous channels (NHWC): nhwc_3x3.cu for 3x3 windows at stride 1, and nhwc.cu for all other windows.
// Kernels for other layouts: nchw_3x3.cu for 3x3 windows at stride 1 if there are few planes (images x channels), else
// nchw.cu.
// Times for 64 images on an H100:
//   3x3, 144 channels of 56 x 56: 59 us in bfloat16, 126 us in float32. To read x and write y at 3.0 TB/s takes 39 us
//   in bfloat16 and 77 us in float32.
//   7x7, 384 channels of 14 x 14: 32 us in bfloat16, 77 us in float32. The multiply-adds take 9 us at 51 TFLOP/s.
#include "cpp/engine/engine_object.h"
#include "cuda/conv/depthwise/group_conv.h"

namespace minidnn {
namespace cuda::conv {
namespace {

bool channels_are_neighbours(const ConvProblem& p) {
  return p.x.stride[1] == 1 && p.y.stride[1] == 1 && p.x.shape[1] == p.y.shape[1] && p.x.shape[1] >= 8;
}

GroupConvLayout layout_of(const ConvProblem& p, const Device& d) {
  const bool pixels = channels_are_neighbours(p) && group_conv_why_not(p, GroupConvLayout::nhwc, 1, d).empty();
  return pixels ? GroupConvLayout::nhwc : GroupConvLayout::nchw;
}

}  // namespace

struct Depthwise final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.depthwise"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.groups != p.x.shape[1])
      return cat("needs a group for each channel of x; got groups=", p.groups, " for ", p.x.shape[1], " channels");
    return group_conv_why_not(p, layout_of(p, d), 1, d);
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return group_conv_estimate_us(p, layout_of(p, d), 1, d);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return group_conv_workspace_bytes(p, layout_of(p, d), 1, d);
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return build_group_conv(p, layout_of(p, d), 1, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (GroupConvLayout layout : {GroupConvLayout::nhwc, GroupConvLayout::nchw})
      for (KernelSpec& s : group_conv_kernels(layout, 1, {DType::float32, DType::float16, DType::bfloat16}))
        all.push_back(std::move(s));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Depthwise>();

}  // namespace minidnn
