// SPDX-License-Identifier: Apache-2.0
// The host side of simt/kernel.cu, for matmul and conv. It makes launches and parameters from a GemmTask; tiling.h
// chooses the tiles.
#pragma once
#include "cuda/gemm/epilogue/split_k.h"
#include "cuda/gemm/simt/tiling.h"

namespace minidnn {

std::string simt_why_not(const GemmTask&);
double simt_estimate_us(const GemmTask&, const Device&);
// All configs of a GemmTask, the fastest (estimated) first.
std::vector<Config> simt_configs(const GemmTask&, const Device&);
size_t simt_workspace_bytes(const GemmTask&, const Config&);
std::vector<KernelSpec> simt_kernels();

// The launches of a config, complete except for the arguments of a call.
struct SimtLaunches {
  // one element per launch; a launch computes up to four phases of backward_data
  std::vector<SimtParams> params;
  std::vector<uint32_t> blocks;
  // `exchanged`: operands a and b are exchanged
  bool vectors_a = false, vectors_b = false, exchanged = false;
  // whether a second kernel applies the epilogue, to sums in the workspace
  bool to_workspace = false;
  // for that second kernel: the layouts of y, c and bias
  GemmView reduced;
};
SimtLaunches simt_launches(const GemmTask&, const SimtConfig&);

std::unique_ptr<GemmPlan> simt_plan(const GemmTask&, const Device&, const Config&);

}  // namespace minidnn
