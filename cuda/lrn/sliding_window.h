// SPDX-License-Identifier: Apache-2.0
// How cuda.lrn.cross_channel and cuda.lrn.spatial_window divide a problem among the threads of sliding_window.cuh, and
// their plans.
#pragma once
#include "cpp/lrn/lrn.h"
#include "cuda/lrn/sliding_window_params.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

constexpr int kCompiledSize = 5;  // the window size with kernels of its own: that of most networks, and cuDNN's default

// The kernel of a problem, and how it is launched. size: the window size that the kernel is compiled for; 0: any.
struct SlidingWindowTiling {
  SlidingWindowParams params;
  SmemLayout smem;
  Axis axis = Axis::none;
  int64_t vector = 0, size = 0, block = 0, grid = 0;
  bool whole = false, centered = false;
};

// Fills in the tiling. Returns "", or why these kernels do not take the problem. In a `whole` tiling, each row begins
// at a multiple of a vector.
std::string tile_sliding_window(const LrnProblem&, Axis, const Device&, SlidingWindowTiling&);
// The number of elements of a thread's vector.
int64_t window_vector(DType, int64_t size, bool means_gradients);
LrnFactors lrn_factors(const LrnProblem&, const LrnArgs&);
double sliding_window_us(const LrnProblem&, const Device&, const SlidingWindowTiling&);
std::unique_ptr<Plan<LrnProblem>> sliding_window_plan(const LrnProblem&, const Device&, const SlidingWindowTiling&,
                                                      const KernelSpec&);

}  // namespace minidnn
