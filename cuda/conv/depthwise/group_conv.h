// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group, for the engines depthwise, grouped and direct_nchw. The functions select
// one of the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and nhwc_3x3.cu. For equal arguments, all functions select the same
// kernel and the same tiling. Host only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn::cuda::conv {

enum class GroupConvLayout {
  nchw,  // the kernel nchw.cu, for any strides; it computes from planes (one channel of one image)
  nhwc,  // the kernel nhwc.cu, for depthwise convolutions with contiguous channels (NHWC)
  // the kernel nhwc.cu, for contiguous channels (NHWC) in groups; each group has equal numbers of input and output
  // channels, a multiple of 4
  nhwc_groups,
};

// `filters` is a template argument of nchw.cu: the number of filters per thread or, for dw, of channels per thread.
// group_conv_why_not() returns an empty string if the convolution is supported, else a sentence that names the limit.
std::string group_conv_why_not(const ConvProblem&, GroupConvLayout, int filters, const Device&);
double group_conv_estimate_us(const ConvProblem&, GroupConvLayout, int filters, const Device&);
size_t group_conv_workspace_bytes(const ConvProblem&, GroupConvLayout, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> build_group_conv(const ConvProblem&, GroupConvLayout, int filters, const Device&);
// Returns all kernels that build_group_conv() may load.
std::vector<KernelSpec> group_conv_kernels(GroupConvLayout, int filters, std::initializer_list<DType>);

// These two functions also serve kernels outside of this folder. group_conv_index_why_not() returns an empty string if
// no operand is empty and all offsets fit in 32 bits, else the reason.
std::string group_conv_index_why_not(const ConvProblem&);
GroupConv group_conv_params(const ConvProblem&);

}  // namespace minidnn::cuda::conv
