// SPDX-License-Identifier: Apache-2.0
// The backward half of the engine cuda.attention.mma: gradients by mma_backward.cu. The functions mma_backward_X are
// those of Engine.
#pragma once
#include "cpp/attention/attention.h"

namespace minidnn::cuda::attention {

// Why backward kernels that copy vectors of 16 bytes cannot read do, or write dq, dk and dv, or "".
std::string gradients_why_not(const AttentionProblem&);

std::string mma_backward_why_not(const AttentionProblem&, const Device&);
double mma_backward_estimate_us(const AttentionProblem&, const Device&);
size_t mma_backward_workspace_bytes(const AttentionProblem&);
std::unique_ptr<Plan<AttentionProblem>> mma_backward_plan(const AttentionProblem&, const Device&);
std::vector<KernelSpec> mma_backward_kernels();

}  // namespace minidnn::cuda::attention
