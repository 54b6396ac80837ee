// SPDX-License-Identifier: Apache-2.0
// The engines cuda.matmul.simt and cuda.conv.simt but for their problems: from views to the parameters of simt.cu,
// tiles, splits of k and launches.
#pragma once
#include "cuda/gemm/parts.h"
#include "cuda/gemm/simt_math.h"
#include "cuda/gemm/task.h"

namespace minidnn {

struct SimtTileSize {
  int m, n, threads, blocks_per_sm, smem_bytes;
};
struct SimtConfig {
  SimtTileSize tile;
  int splits;    // of k
  bool cluster;  // of them: sums are added up in shared memory, else through the workspace
};

std::string simt_why_not(const GemmTask&);
double simt_estimate_us(const GemmTask&, const Device&);
std::vector<Config> simt_configs(const GemmTask&, const Device&);  // best first
size_t simt_workspace_bytes(const GemmTask&, const Config&);
std::vector<KernelSpec> simt_kernels();

// A config made ready: what each launch gets, but for pointers.
struct SimtLaunches {
  std::vector<SimtParams> params;  // four phases of backward_data in each
  std::vector<uint32_t> blocks;
  bool vectors_a = false, vectors_b = false, exchanged = false;  // exchanged: a and b have changed places
  bool parts = false;  // sums go to the workspace, and the epilogue is applied to them
  GemmView of_parts;   // then: y and what is added, as SplitKReduce sees it
};
SimtLaunches simt_launches(const GemmTask&, const SimtConfig&);
SimtConfig simt_config(const Config&);

std::unique_ptr<GemmPlan> simt_plan(const GemmTask&, const Device&, const Config&);

}  // namespace minidnn
