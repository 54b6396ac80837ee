// SPDX-License-Identifier: Apache-2.0
// How cuda.norm.across and cuda.norm.around divide a problem among the threads of walk.cuh, and their plans.
#pragma once
#include "cpp/norm/local_norm.h"
#include "cuda/norm/walk.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

constexpr int kWalkSize = 5;  // the window size with kernels of its own: that of most networks, and cuDNN's default

// The kernel of a problem, and how it is launched. size: the window size that the kernel is compiled for; 0: any.
struct WalkCut {
  NormWalk walk;
  SmemLayout room;
  Along along = Along::nothing;
  int64_t vector = 0, size = 0, block = 0, grid = 0;
  bool whole = false, centered = false;
};

// Fills in the cut. Returns "", or why these kernels do not take the problem. In a `whole` cut, each row begins at a
// multiple of a vector.
std::string cut_walk(const LocalNormProblem&, Along, const Device&, WalkCut&);
int64_t walk_vector(DType, int64_t size, bool means_gradients);  // elements
WalkFactors walk_factors(const LocalNormProblem&, const LocalNormArgs&);
double walk_estimate_us(const LocalNormProblem&, const Device&, const WalkCut&);
std::unique_ptr<Plan<LocalNormProblem>> walk_plan(const LocalNormProblem&, const Device&, const WalkCut&,
                                                  const KernelSpec&);

}  // namespace minidnn
