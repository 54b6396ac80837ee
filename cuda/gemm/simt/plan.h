// SPDX-License-Identifier: Apache-2.0
// The host side of simt/kernel.cu, which the engines cuda.matmul.simt and cuda.conv.simt share. It makes the launches
// of the kernel, and their parameters, from a GemmTask. tiling.h chooses the tiles.
#pragma once
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/simt/tiling.h"

namespace minidnn {

std::string simt_why_not(const GemmTask&);
double simt_estimate_us(const GemmTask&, const Device&);
// Returns all configs of a GemmTask, sorted by estimated time. The config with the shortest time comes first.
std::vector<Config> simt_configs(const GemmTask&, const Device&);
size_t simt_workspace_bytes(const GemmTask&, const Config&);
std::vector<KernelSpec> simt_kernels();

// The launches that a config needs. The parameters of the launches are complete, except for the arguments of a call.
struct SimtLaunches {
  // The parameters of each launch; a launch computes up to four phases of backward_data.
  std::vector<SimtParams> params;
  std::vector<uint32_t> blocks;
  // `exchanged` tells whether operands a and b are exchanged.
  bool vectors_a = false, vectors_b = false, exchanged = false;
  // True if the kernel writes sums to the workspace, and a second kernel applies the epilogue.
  bool to_workspace = false;
  // The layouts of y, c and bias as SplitKReduce reads them; used only if the kernel writes sums to the workspace.
  GemmView reduced;
};
SimtLaunches simt_launches(const GemmTask&, const SimtConfig&);

std::unique_ptr<GemmPlan> simt_plan(const GemmTask&, const Device&, const Config&);

}  // namespace minidnn
