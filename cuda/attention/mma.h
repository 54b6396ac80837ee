// SPDX-License-Identifier: Apache-2.0
// What the engines on mma.sync have in common: cuda.attention.mma and its backward pass.
#pragma once
#include "cpp/attention/attention.h"

namespace minidnn::cuda::attention {

// Why kernels for tensor cores cannot read q, k, v, o and bias of a problem, or "". They copy vectors of 16 bytes. With
// `tf32`, they support float32, too, by TF32 products.
std::string mma_why_not(const AttentionProblem&, const Device&, bool tf32 = false);

}  // namespace minidnn::cuda::attention
