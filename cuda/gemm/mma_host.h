// SPDX-License-Identifier: Apache-2.0
// The engines cuda.matmul.mma, cuda.conv.mma and their 3xTF32 siblings but for their problems: from views to vectors,
// tiles and launches of the main loop in mma_gather.cu.
#pragma once
#include <vector>

#include "cuda/gemm/gather.h"
#include "cuda/gemm/task.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// What float32 products are made of; 16-bit ones are what they are.
enum class MmaProducts { one, three };

std::string mma_why_not_ieee(MmaProducts);
std::string mma_why_not(const GemmTask&, const Device&, MmaProducts);
double mma_estimate_us(const GemmTask&, const Device&, MmaProducts);
std::vector<std::string> mma_configs(const GemmTask&, const Device&, MmaProducts);  // best first
size_t mma_workspace_bytes(const GemmTask&, MmaProducts, const std::string& config);
// What a plan launches, a grid for each phase; those after the first may start before the one before them has ended.
struct MmaLaunch {
  cuda::LaunchConfig config;
  MmaParams params;
};
struct MmaLaunches {
  KernelSpec kernel;
  bool exchanged = false;  // a and b
  GemmView view;           // the first
  int64_t splits = 1;      // more than one: the launch writes so many of y, which are then added
  std::vector<MmaLaunch> all;
};
MmaLaunches mma_launches(const GemmTask&, MmaProducts, const std::string& config);
std::unique_ptr<GemmPlan> mma_plan(const GemmTask&, const Device&, MmaProducts, const std::string& config);
std::vector<KernelSpec> mma_kernels(MmaProducts);

// A task's views made ready for the kernel: a and b exchanged where y is contiguous along its rows, and how each of
// them is read, the same in all phases. Blocks and outputs are left to the caller. `why` says what is beyond the
// kernel.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // bytes
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
