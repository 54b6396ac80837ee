// SPDX-License-Identifier: Apache-2.0
// What the engines on mma.sync have in common: cuda.attention.mma and its backward pass.
#pragma once
#include "cpp/attention/attention.h"

namespace minidnn::cuda::attention {

// Why the kernels cannot read q, k, v, o and bias of a problem, or "". They copy vectors of 16 bytes.
std::string mma_why_not(const AttentionProblem&, const Device&);

}  // namespace minidnn::cuda::attention
