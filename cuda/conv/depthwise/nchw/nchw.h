// SPDX-License-Identifier: Apache-2.0
// The tilings and launches of the kernels in nchw.cu, nchw_filter.cu and nchw_3x3.cu. Host only.
#pragma once
#include <optional>

#include "cuda/conv/depthwise/nchw/nchw_params.h"
#include "cuda/conv/depthwise/tiling.h"

namespace minidnn::cuda::conv {

struct NchwTiling : GroupConvTiling {
  NchwBlock block;
  CompiledWindow window;
  int64_t filters = 1;           // a template argument: kFilters of nchw.cu, or kChannels of nchw_filter.cu (dw)
  int32_t vectors = kNoVectors;  // how nchw_filter.cu copies dy to shared memory
};
// `filters`: the number of filters per thread or, for dw, of channels per thread
NchwTiling nchw_tiling(const ConvProblem&, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, NchwTiling, const Device&);
std::vector<KernelSpec> nchw_kernels(int filters, DType);

// The tiling of nchw_3x3.cu: depthwise convolutions with 3 x 3 windows at stride 1, whose threads all run at the same
// time. nchw_3x3_tiling() returns nothing for any other convolution.
struct Nchw3x3Tiling : GroupConvTiling {
  Nchw3x3 block;
};
std::optional<Nchw3x3Tiling> nchw_3x3_tiling(const ConvProblem&, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, const Nchw3x3Tiling&, const Device&);
KernelSpec nchw_3x3_kernel(DType);

}  // namespace minidnn::cuda::conv
