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
// `filters`: for y and dx, the number of filters that a thread computes. For dw, the number of channels of x that a
// thread computes.
NchwTiling nchw_tiling(const ConvProblem&, int filters, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, NchwTiling, const Device&);
std::vector<KernelSpec> nchw_kernels(int filters, DType);

// The tiling of nchw_3x3.cu, which computes depthwise convolutions with 3 x 3 windows at stride 1. nchw_3x3_tiling()
// returns nothing for any other convolution. It also returns nothing if the device cannot run all threads of the
// convolution at the same time. A thread has no loads in flight while it computes, so threads that start later would
// wait for memory again.
struct Nchw3x3Tiling : GroupConvTiling {
  Nchw3x3 block;
};
std::optional<Nchw3x3Tiling> nchw_3x3_tiling(const ConvProblem&, const Device&);
std::unique_ptr<Plan<ConvProblem>> group_conv_plan(const ConvProblem&, const Nchw3x3Tiling&, const Device&);
KernelSpec nchw_3x3_kernel(DType);

}  // namespace minidnn::cuda::conv
