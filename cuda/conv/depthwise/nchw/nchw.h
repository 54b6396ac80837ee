// SPDX-License-Identifier: Apache-2.0
// The tilings and launches of nchw.cu and nchw_3x3.cu. Host only.
#pragma once
#include <optional>

#include "cuda/conv/depthwise/nchw/nchw_params.h"
#include "cuda/conv/depthwise/tiling.h"

namespace minidnn::cuda::conv {

struct NchwTiling : GroupConvTiling {
  NchwBlock block;
  CompiledWindow window;
  int64_t filters = 1;           // template argument kFilters, for dw kChannels
  int32_t vectors = kNoVectors;  // how dy is copied
};
// `filters`: the number of filters that a thread computes at the same time; for dw, the number of channels that it
// multiplies dy with.
NchwTiling nchw_tiling(const ConvProblem&, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, NchwTiling, const Device&);
std::vector<KernelSpec> nchw_kernels(int filters, DType);

// Depthwise, 3 x 3 at stride 1. Empty if the problem is another one, or does not fit in the registers of all SMs at the
// same time: this kernel does not load the next tile while it computes one.
struct Nchw3x3Tiling : GroupConvTiling {
  Nchw3x3 block;
};
std::optional<Nchw3x3Tiling> nchw_3x3_tiling(const ConvProblem&, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, const Nchw3x3Tiling&, const Device&);
KernelSpec nchw_3x3_kernel(DType);

}  // namespace minidnn::cuda::conv
