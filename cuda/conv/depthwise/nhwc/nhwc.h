// SPDX-License-Identifier: Apache-2.0
// The tilings and launches of the kernels in nhwc.cu and nhwc_3x3.cu. Host only.
#pragma once
#include <optional>

#include "cuda/conv/depthwise/nhwc/nhwc_params.h"
#include "cuda/conv/depthwise/tiling.h"

namespace minidnn::cuda::conv {

// The tiling of nhwc.cu. `grouped`: each group has as many input as output channels, a multiple of 4. If not, each
// channel is a group.
struct NhwcTiling : GroupConvTiling {
  NhwcBlock block;
  CompiledWindow window;
  bool grouped = false;
};
NhwcTiling nhwc_tiling(const ConvProblem&, bool grouped, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, NhwcTiling, const Device&);
std::vector<KernelSpec> nhwc_kernels(bool grouped, DType);

// The tiling of nhwc_3x3.cu, which computes convolutions with 3 x 3 windows at stride 1, depthwise or in groups of four
// channels. nhwc_3x3_tiling() returns nothing for any other convolution.
struct Nhwc3x3Tiling : GroupConvTiling {
  Nhwc3x3 block;
  bool grouped = false;
};
std::optional<Nhwc3x3Tiling> nhwc_3x3_tiling(const ConvProblem&, bool grouped, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, const Nhwc3x3Tiling&, const Device&);
KernelSpec nhwc_3x3_kernel(bool grouped, DType);

}  // namespace minidnn::cuda::conv
