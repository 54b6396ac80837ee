// SPDX-License-Identifier: Apache-2.0
// The host side of mma/kernel.cu. The engines cuda.matmul.mma, cuda.conv.mma and their variants with three TF32
// products share it. It makes the launches of the kernel from a GemmTask, and chooses the widths of vectors and the
// tiles.
#pragma once
#include <vector>

#include "cuda/gemm/mma/tiling.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

std::string mma_why_not_ieee(MmaProducts);
std::string mma_why_not(const GemmTask&, const Device&, MmaProducts);
double mma_estimate_us(const GemmTask&, const Device&, MmaProducts);
// Returns all configs of a GemmTask. The preferred config comes first.
std::vector<std::string> mma_configs(const GemmTask&, const Device&, MmaProducts);
size_t mma_workspace_bytes(const GemmTask&, MmaProducts, const std::string& config);
// The launches of a plan: one grid for each phase of strided backward_data, or a single grid. Each grid after the first
// may start before the previous grid has ended.
struct MmaLaunch {
  cuda::LaunchConfig config;
  MmaParams params;
};
struct MmaLaunches {
  KernelSpec kernel;
  bool exchanged = false;  // whether operands a and b are exchanged
  GemmView view;           // The GemmView of the first launch. If `exchanged`, operands a and b are exchanged in it.
  // The number of splits of k. If it is more than 1, the launch writes sums for each split, and a second kernel adds
  // them up.
  int64_t splits = 1;
  std::vector<MmaLaunch> all;
};
MmaLaunches mma_launches(const GemmTask&, MmaProducts, const std::string& config);
std::unique_ptr<GemmPlan> mma_plan(const GemmTask&, const Device&, MmaProducts, const std::string& config);
std::vector<KernelSpec> mma_kernels(MmaProducts);

}  // namespace minidnn
