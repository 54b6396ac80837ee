// SPDX-License-Identifier: Apache-2.0
// What the engines on wgmma have in common: cuda.attention.wgmma and its backward passes.
#pragma once
#include "cpp/attention/attention.h"
#include "cuda/device/tensor_map.cuh"

namespace minidnn::cuda::attention {

// Why the kernels cannot compute a problem, or "". They load tensors [B, H, S, D] by TMA. Backward kernels
// have further limits.
std::string wgmma_why_not(const AttentionProblem&, const Device&);
// Why TMA cannot load or store a tensor, or "". `name` is its name in the message.
std::string why_not_map(const char* name, const TensorDesc&);

// The map of a tensor [B, H, S, D], whose dimensions are D, S, H, B and 1. A box has `rows` rows of 64 elements, in
// 128-byte swizzle. Elements outside of the tensor are loaded as zeros. If packed, B is 1.
TensorMap map_of(const TensorDesc&, const void* data, int64_t rows, int device);

}  // namespace minidnn::cuda::attention
