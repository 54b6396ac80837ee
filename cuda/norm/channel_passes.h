// SPDX-License-Identifier: Apache-2.0
// Dense tensors with statistics per channel, for cuda.batch_norm and cuda.layer_norm.two_pass_groups. This file
// declares the check of their layout, its division among blocks, and the kernels of two passes (channel_passes.cu).
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// Limit of the number of items (vectors or rows) in a channel, and of blocks: they must fit 32-bit arithmetic.
constexpr int64_t kMostItems = int64_t(1) << 30;

// Describes a dense batch norm as planes (NCHW) or columns (NHWC). Fills in channels, members and plane, which is 1 for
// columns. Returns "", or the reason if the layout is neither.
std::string dense_channels(const BatchNormProblem&, ChannelTiling&);
int64_t vector_of(const BatchNormProblem&, const ChannelTiling&);  // number of elements in a vector
// Divides the items (vectors or rows) of all channels among blocks.
void divide_channels(ChannelTiling&, int64_t vector, const Device&);
int64_t blocks_of(const ChannelTiling&);
size_t partial_bytes(const ChannelTiling&);
// The kernel of a pass. pass: "sums" or "map".
KernelSpec channel_pass(const BatchNormProblem&, const ChannelTiling&, const char* pass);

}  // namespace minidnn
