// SPDX-License-Identifier: Apache-2.0
// Plans for the kernels of nchw.cu and nhwc.cu. All engines for convolutions with few channels in a group use them.
#pragma once
#include <functional>

#include "cpp/conv/conv.h"
#include "cuda/conv/depthwise/group_conv_params.h"

namespace minidnn {

enum class StencilKind {
  planes,        // nchw.cu: any strides
  pixels,        // nhwc.cu: contiguous channels, each a group (depthwise)
  pixel_groups,  // the same with equal numbers of channels in and out per group, a multiple of 4
};

// `filters`: the number of filters that a thread of nchw.cu computes at the same time; for dw, the number of channels
// it multiplies dy with.
// stencil_why_not(): empty, or one sentence on a limit of the kernel that the problem breaks.
std::string stencil_why_not(const ConvProblem&, StencilKind, int filters, const Device&);
double stencil_estimate_us(const ConvProblem&, StencilKind, int filters, const Device&);
size_t stencil_workspace_bytes(const ConvProblem&, StencilKind, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> build_stencil(const ConvProblem&, StencilKind, int filters, const Device&);
// All kernels that build_stencil() may load.
std::vector<KernelSpec> stencil_kernels(StencilKind, int filters, std::initializer_list<DType>);

// For engines with their own kernel over the same geometry.
std::string stencil_index_why_not(const ConvProblem&);  // empty operands, limits of 32-bit offsets
Stencil stencil_of(const ConvProblem&);
// Adds up `parts` partial sums of dw, stored as [part][filter][channel][window]. The parts of an element are added in a
// fixed order.
std::function<void(const void* parts, void* dw, Stream)> filter_adder(const ConvProblem&, int64_t parts, const Device&);
KernelSpec filter_sum_kernel(DType out);

}  // namespace minidnn
