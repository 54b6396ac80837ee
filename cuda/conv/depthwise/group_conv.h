// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group. The functions choose among the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and
// nhwc_3x3.cu. The engines depthwise, grouped and direct_nchw call these functions. All functions compute the same
// tiling for the same problem. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn::cuda::conv {

enum class GroupConvLayout {
  nchw,         // planes (one channel of one image), for any strides: the kernel nchw.cu
  nhwc,         // contiguous channels, each channel a group (depthwise): the kernel nhwc.cu
  nhwc_groups,  // contiguous channels; each group has equal numbers of input and output channels, a multiple of 4
};

// `filters`: for y and dx, the number of filters that a thread of nchw.cu computes; for dw, the number of channels of x
// that a thread computes.
// group_conv_why_not() returns an empty string if the kernel can run the problem, else one sentence that names the
// limit.
std::string group_conv_why_not(const ConvProblem&, GroupConvLayout, int filters, const Device&);
double group_conv_estimate_us(const ConvProblem&, GroupConvLayout, int filters, const Device&);
size_t group_conv_workspace_bytes(const ConvProblem&, GroupConvLayout, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> build_group_conv(const ConvProblem&, GroupConvLayout, int filters, const Device&);
// Returns all kernels that build_group_conv() may load.
std::vector<KernelSpec> group_conv_kernels(GroupConvLayout, int filters, std::initializer_list<DType>);

// Other kernels that describe a convolution by GroupConv use these two functions, too. group_conv_index_why_not()
// returns an empty string if no operand is empty and all offsets fit in 32 bits, else the reason.
std::string group_conv_index_why_not(const ConvProblem&);
GroupConv group_conv_params(const ConvProblem&);

}  // namespace minidnn::cuda::conv
