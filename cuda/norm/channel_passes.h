// SPDX-License-Identifier: Apache-2.0
// Dense tensors with a mean and a variance per channel, for cuda.batch_norm and cuda.layer_norm.two_pass_groups. This
// file declares functions that check the layout, that divide the channels among blocks, and that name the kernels of
// channel_passes.cu.
#pragma once
#include "cpp/batch_norm/batch_norm.h"
#include "cuda/norm/channel_passes_params.h"

namespace minidnn {

// The upper limit for the number of blocks, and for the vectors (NCHW) or rows (NHWC) of a channel, because kernels use
// 32-bit indices.
constexpr int64_t kMostItems = int64_t(1) << 30;

// Describes a dense batch norm as planes (NCHW) or columns (NHWC), and fills in its sizes. Returns "", or the reason if
// the layout is another one.
std::string dense_channels(const BatchNormProblem&, ChannelTiling&);
// the number of elements in 16 bytes, or 1 if x does not divide into vectors of 16 bytes
int64_t vector_of(const BatchNormProblem&, const ChannelTiling&);
// Divides the vectors (NCHW) or rows (NHWC) of all channels among blocks.
void divide_channels(ChannelTiling&, int64_t vector, const Device&);
int64_t blocks_of(const ChannelTiling&);
size_t partial_bytes(const ChannelTiling&);
// Returns the kernel for a launch. `pass` is "sums" for the launch that adds up, or "map" for the launch that computes
// y or dx.
KernelSpec channel_pass(const BatchNormProblem&, const ChannelTiling&, const char* pass);

}  // namespace minidnn
