// SPDX-License-Identifier: Apache-2.0
// The host side of the engines cuda.matmul.mma, cuda.conv.mma and their 3xTF32 variants, all but their problems: from
// views to vectors, tiles and launches of the main loop in mma_gather.cu.
#pragma once
#include <vector>

#include "cuda/gemm/gather.h"
#include "cuda/gemm/task.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// How many TF32 products compute one float32 product. 16-bit operands always take one.
enum class MmaProducts { one, three };

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
  GemmView view;           // the first phase
  int64_t splits = 1;      // if more than 1: the launch writes one y for each split, and a second kernel adds them
  std::vector<MmaLaunch> all;
};
MmaLaunches mma_launches(const GemmTask&, MmaProducts, const std::string& config);
std::unique_ptr<GemmPlan> mma_plan(const GemmTask&, const Device&, MmaProducts, const std::string& config);
std::vector<KernelSpec> mma_kernels(MmaProducts);

// A task's views, prepared for the kernel: a and b are exchanged if neighbouring rows of y are neighbours in memory,
// and the way to read each operand is the same in all phases. The caller fills in blocks and outputs. `why` is empty,
// or says what the kernel does not support.
struct MmaViews {
  std::vector<GemmView> views;
  std::vector<MmaParams> phases;
  bool exchanged = false, wide = false, a_along_k = false, b_along_k = false;
  int64_t element = 4;  // bytes
  std::string why;
  explicit MmaViews(const GemmTask&);
};

}  // namespace minidnn
