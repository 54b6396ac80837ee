// SPDX-License-Identifier: Apache-2.0
// The host side of the engines cuda.matmul.mma, cuda.conv.mma and their 3xTF32 variants, all but their problems: from
// views to vectors, tiles and launches of the main loop in mma/kernel.cu.
#pragma once
#include <vector>

#include "cuda/gemm/mma/tiling.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

std::string mma_why_not_ieee(MmaProducts);
std::string mma_why_not(const GemmTask&, const Device&, MmaProducts);
double mma_estimate_us(const GemmTask&, const Device&, MmaProducts);
std::vector<std::string> mma_configs(const GemmTask&, const Device&, MmaProducts);  // best first
size_t mma_workspace_bytes(const GemmTask&, MmaProducts, const std::string& config);
// What a plan launches: a grid for each phase. Each grid after the first may start before the previous one has ended.
struct MmaLaunch {
  cuda::LaunchConfig config;
  MmaParams params;
};
struct MmaLaunches {
  KernelSpec kernel;
  bool exchanged = false;  // whether a and b are
  GemmView view;           // that of the first phase
  int64_t splits = 1;      // if more than 1: the launch writes one y for each split, and a second kernel adds them
  std::vector<MmaLaunch> all;
};
MmaLaunches mma_launches(const GemmTask&, MmaProducts, const std::string& config);
std::unique_ptr<GemmPlan> mma_plan(const GemmTask&, const Device&, MmaProducts, const std::string& config);
std::vector<KernelSpec> mma_kernels(MmaProducts);

}  // namespace minidnn
