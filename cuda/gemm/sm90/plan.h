// SPDX-License-Identifier: Apache-2.0
// The host side of sm90/kernel.cu, the main loop of sm_90a, for any GemmTask. It chooses tiles, makes tensor maps of
// the operands, and launches the kernel. Only host code includes this file.
#pragma once
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {

std::string sm90_why_not(const GemmTask&, const Device&);
double sm90_estimate_us(const GemmTask&, const Device&);
// All configs of a GemmTask, the fastest (estimated) first.
std::vector<Config> sm90_configs(const GemmTask&, const Device&);
size_t sm90_workspace_bytes(const GemmTask&, const Config&);
std::unique_ptr<GemmPlan> sm90_plan(const GemmTask&, const Device&, const Config&);
// Returns the number of rows of GemmArgs::sums, for a GemmTask that computes column sums. Each row has the layout [2,
// n].
int64_t sm90_sums(const GemmTask&, const Config&);
std::vector<KernelSpec> sm90_kernels(bool convolutions, bool promote = false);
std::vector<KernelSpec> sm90_kernels_with_sums();

}  // namespace minidnn
