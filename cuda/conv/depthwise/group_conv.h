// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels in a group: a choice among the kernels nchw.cu, nchw_3x3.cu, nhwc.cu and nhwc_3x3.cu.
// The engines depthwise, grouped and direct_nchw are built from these functions, which all read the same tiling. Host
// only.
#pragma once
#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn::cuda::conv {

enum class GroupConvLayout {
  nchw,         // nchw.cu: any strides
  nhwc,         // nhwc.cu: contiguous channels, each a group (depthwise)
  nhwc_groups,  // contiguous channels; groups with a multiple of 4 channels in and as many out
};

// `filters`: the number of filters that a thread of nchw.cu computes at the same time; for dw, the number of channels
// that it multiplies dy with.
// group_conv_why_not(): empty, or one sentence on a limit of the kernel that the problem exceeds.
std::string group_conv_why_not(const ConvProblem&, GroupConvLayout, int filters, const Device&);
double group_conv_estimate_us(const ConvProblem&, GroupConvLayout, int filters, const Device&);
size_t group_conv_workspace_bytes(const ConvProblem&, GroupConvLayout, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> build_group_conv(const ConvProblem&, GroupConvLayout, int filters, const Device&);
// All kernels that build_group_conv() may load.
std::vector<KernelSpec> group_conv_kernels(GroupConvLayout, int filters, std::initializer_list<DType>);

// For kernels of the same geometry.
std::string group_conv_index_why_not(const ConvProblem&);  // empty operands, limits of 32-bit offsets
GroupConv group_conv_params(const ConvProblem&);

}  // namespace minidnn::cuda::conv
