// SPDX-License-Identifier: Apache-2.0
// The host side that the engines cuda.matmul.simt and cuda.conv.simt share. It makes the launches of simt/kernel.cu and
// their parameters from a GemmTask. tiling.h chooses tiles.
#pragma once
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/simt/tiling.h"

namespace minidnn {

std::string simt_why_not(const GemmTask&);
double simt_estimate_us(const GemmTask&, const Device&);
// configs in the order of their estimated time, the shortest first
std::vector<Config> simt_configs(const GemmTask&, const Device&);
size_t simt_workspace_bytes(const GemmTask&, const Config&);
std::vector<KernelSpec> simt_kernels();

// The launches of a config. Their parameters are complete, except for the pointers.
struct SimtLaunches {
  std::vector<SimtParams> params;  // one for each launch; a launch computes up to four phases of backward_data
  std::vector<uint32_t> blocks;
  bool vectors_a = false, vectors_b = false, exchanged = false;  // exchanged: whether a and b are exchanged
  bool to_workspace = false;  // true if the sums go to the workspace and a second kernel applies the epilogue
  GemmView reduced;           // used if to_workspace: the layouts of y, c and bias as SplitKReduce reads them
};
SimtLaunches simt_launches(const GemmTask&, const SimtConfig&);

std::unique_ptr<GemmPlan> simt_plan(const GemmTask&, const Device&, const Config&);

}  // namespace minidnn
