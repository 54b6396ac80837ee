// SPDX-License-Identifier: Apache-2.0
// Tilings, plans and time estimates for the kernels of sliding_window.cuh. The engines cuda.lrn.cross_channel and
// cuda.lrn.spatial_window use them.
#pragma once
#include "cpp/lrn/lrn.h"
#include "cuda/lrn/sliding_window_params.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// The only window size for which kernels with a compile-time size exist. It is cuDNN's default and common in networks.
constexpr int kCompiledSize = 5;

// The tiling and the launch of a window kernel. `size` is the window size if it is a template argument of the kernel.
// It is 0 if the kernel supports any size.
struct SlidingWindowTiling {
  SlidingWindowParams params;
  SmemLayout smem;
  Axis axis = Axis::none;
  int64_t vector = 0, size = 0, block = 0, grid = 0;
  bool whole = false, centered = false;
};

// Fills in the tiling. Returns "", or the reason if the kernels do not support the problem. `whole` tells whether the
// window size is kCompiledSize and each row begins at a multiple of 16 bytes.
std::string tile_sliding_window(const LrnProblem&, Axis, const Device&, SlidingWindowTiling&);
// Returns the number of elements in the vector that a thread has.
int64_t window_vector(DType, int64_t size, bool means_gradients);
LrnFactors lrn_factors(const LrnProblem&, const LrnArgs&);
double sliding_window_us(const LrnProblem&, const Device&, const SlidingWindowTiling&);
std::unique_ptr<Plan<LrnProblem>> sliding_window_plan(const LrnProblem&, const Device&, const SlidingWindowTiling&,
                                                      const KernelSpec&);

}  // namespace minidnn
