// SPDX-License-Identifier: Apache-2.0
// The host side of the engines cuda.matmul.simt and cuda.conv.simt, all but their problems: from views to the
// parameters of kernel.cu and launches. tiling.h chooses tiles.
#pragma once
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/simt/tiling.h"

namespace minidnn {

std::string simt_why_not(const GemmTask&);
double simt_estimate_us(const GemmTask&, const Device&);
std::vector<Config> simt_configs(const GemmTask&, const Device&);  // best first
size_t simt_workspace_bytes(const GemmTask&, const Config&);
std::vector<KernelSpec> simt_kernels();

// The launches of a config, complete but for the pointers.
struct SimtLaunches {
  std::vector<SimtParams> params;  // each has up to four phases of backward_data
  std::vector<uint32_t> blocks;
  bool vectors_a = false, vectors_b = false, exchanged = false;  // exchanged: whether a and b are
  bool to_workspace = false;  // sums go to the workspace; a second kernel applies the epilogue
  GemmView reduced;           // if to_workspace: y, c and bias as SplitKReduce reads them
};
SimtLaunches simt_launches(const GemmTask&, const SimtConfig&);

std::unique_ptr<GemmPlan> simt_plan(const GemmTask&, const Device&, const Config&);

}  // namespace minidnn
