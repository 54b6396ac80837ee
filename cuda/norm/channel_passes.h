// SPDX-License-Identifier: Apache-2.0
// Dense tensors with statistics per channel: their layout, how the blocks of two passes divide it, and the kernels of
// both passes (channel_passes.cu). For cuda.batch_norm and cuda.layer_norm.two_pass_groups.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

constexpr int64_t kMostItems = int64_t(1) << 30;  // items of a channel, and blocks: they fit 32-bit arithmetic

// Takes a dense batch norm as planes or columns: fills in channels, members and plane (1: columns). Returns "", or why
// the layout is neither.
std::string dense_channels(const BatchNormProblem&, ChannelTiling&);
int64_t vector_of(const BatchNormProblem&, const ChannelTiling&);  // elements
// Divides the items among blocks.
void divide_channels(ChannelTiling&, int64_t vector, const Device&);
int64_t blocks_of(const ChannelTiling&);
size_t partial_bytes(const ChannelTiling&);
// The kernel of a pass, "sums" or "map".
KernelSpec channel_pass(const BatchNormProblem&, const ChannelTiling&, const char* pass);

}  // namespace minidnn
