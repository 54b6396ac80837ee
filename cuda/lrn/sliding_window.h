// SPDX-License-Identifier: Apache-2.0
// Tilings, plans and time estimates of cuda.lrn.cross_channel and cuda.lrn.spatial_window, for the kernels that use
// sliding_window.cuh.
#pragma once
#include "cpp/lrn/lrn.h"
#include "cuda/lrn/sliding_window_params.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// The window size that has kernels of its own; it is cuDNN's default and common in networks.
constexpr int kCompiledSize = 5;

// The kernel of a problem and its launch. size: the window size for which the kernel is compiled, or 0 if it supports
// any size.
struct SlidingWindowTiling {
  SlidingWindowParams params;
  SmemLayout smem;
  Axis axis = Axis::none;
  int64_t vector = 0, size = 0, block = 0, grid = 0;
  bool whole = false, centered = false;
};

// Fills in the tiling. Returns "" if these kernels support the problem, otherwise the reason why not. In a `whole`
// tiling, each row begins at a multiple of a vector.
std::string tile_sliding_window(const LrnProblem&, Axis, const Device&, SlidingWindowTiling&);
// The number of elements in the vector of a thread.
int64_t window_vector(DType, int64_t size, bool means_gradients);
LrnFactors lrn_factors(const LrnProblem&, const LrnArgs&);
double sliding_window_us(const LrnProblem&, const Device&, const SlidingWindowTiling&);
std::unique_ptr<Plan<LrnProblem>> sliding_window_plan(const LrnProblem&, const Device&, const SlidingWindowTiling&,
                                                      const KernelSpec&);

}  // namespace minidnn
