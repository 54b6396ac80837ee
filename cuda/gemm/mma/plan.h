// SPDX-License-Identifier: Apache-2.0
// The host side of mma/kernel.cu, for matmul and conv, with one or three TF32 products. It makes the launches of the
// kernel from a GemmTask, and chooses vector widths and tiles.
#pragma once
#include <vector>

#include "cuda/gemm/mma/tiling.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

std::string mma_why_not_ieee(MmaProducts);
std::string mma_why_not(const GemmTask&, const Device&, MmaProducts);
double mma_estimate_us(const GemmTask&, const Device&, MmaProducts);
// All configs of a GemmTask, the preferred one first.
std::vector<std::string> mma_configs(const GemmTask&, const Device&, MmaProducts);
size_t mma_workspace_bytes(const GemmTask&, MmaProducts, const std::string& config);
// One launch or, for strided backward_data, one launch for each phase. A launch may start before the previous one has
// ended.
struct MmaLaunch {
  cuda::LaunchConfig config;
  MmaParams params;
};
struct MmaLaunches {
  KernelSpec kernel;
  bool exchanged = false;  // whether operands a and b are exchanged
  GemmView view;           // the GemmView of the first launch, after the exchange
  // The number of splits of k. If there are several, a second kernel adds up their sums.
  int64_t splits = 1;
  std::vector<MmaLaunch> all;
};
MmaLaunches mma_launches(const GemmTask&, MmaProducts, const std::string& config);
std::unique_ptr<GemmPlan> mma_plan(const GemmTask&, const Device&, MmaProducts, const std::string& config);
std::vector<KernelSpec> mma_kernels(MmaProducts);

}  // namespace minidnn
