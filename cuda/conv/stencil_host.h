// SPDX-License-Identifier: Apache-2.0
// Plans for the kernels of planes.cu and pixels.cu, which the engines of convolutions with few channels in a group
// share.
#pragma once
#include <functional>

#include "cpp/conv/conv.h"
#include "cuda/conv/stencil.h"

namespace minidnn {

enum class StencilKind {
  planes,        // planes.cu: any strides
  pixels,        // pixels.cu: channels are neighbours, and each meets itself alone (depthwise)
  pixel_groups,  // or those of its group: as many in as out, a multiple of 4
};

// How a kernel runs a problem; `filters` is how many of them a thread of planes.cu computes at once, or for dw how many
// channels it meets.
// Empty, or one sentence on a limit of the kernel that the problem breaks.
std::string stencil_why_not(const ConvProblem&, StencilKind, int filters, const Device&);
double stencil_estimate_us(const ConvProblem&, StencilKind, int filters, const Device&);
size_t stencil_workspace_bytes(const ConvProblem&, StencilKind, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> build_stencil(const ConvProblem&, StencilKind, int filters, const Device&);
// All that build_stencil() may ask for.
std::vector<KernelSpec> stencil_kernels(StencilKind, int filters, std::initializer_list<DType>);

// For an engine with a kernel of its own over the same geometry.
std::string stencil_index_why_not(const ConvProblem&);  // limits of 32-bit offsets; there being nothing to compute
Stencil stencil_of(const ConvProblem&);
// Adds `parts` parts of dw up, [part][filter][channel][window], each element's in one order.
std::function<void(const void* parts, void* dw, Stream)> filter_adder(const ConvProblem&, int64_t parts, const Device&);
KernelSpec filter_sum_kernel(DType out);

}  // namespace minidnn
