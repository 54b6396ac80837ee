// SPDX-License-Identifier: Apache-2.0
// The division of a dense batch norm by cuda.batch_norm.two_pass, for host code and kernels. The tensor consists of
// planes [images][channels][plane] (NCHW) or columns [rows][channels] (NHWC). In planes, the vectors of a channel are
// counted over all images. cuda.layer_norm.two_pass_groups divides each sample separately. It takes the planes of all
// samples as channels of one image, and columns as `samples` tensors.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kChannelThreads = 256;
// Columns (NHWC): number of rows that a forward thread loads at the same time. A backward thread loads half as many
// rows, but of two tensors.
constexpr int kRowsInFlight = 8;
// Two kinds of blocks join partial results. kFinish: a block has few channels, because NHWC tensors have about a
// thousand chunks. kJoin: a block has 32 channels, one per lane.
constexpr int kFinishThreads = 512, kFinishChannels = 8;
constexpr int kJoinWarps = 16, kJoinThreads = 32 * kJoinWarps, kJoinChannels = 32;

struct ChannelTiling {
  int64_t channels = 0, members = 0;  // members: number of elements of a statistic
  int64_t samples = 1;
  int64_t parameters = 0;  // number of channels in a sample
  uint32_t tiles = 1;      // columns (NHWC): number of tiles in a row
  FastDivmod by_tiles;
  // The number of neighbouring channels that share a statistic. In batch norm, it is more than 1 only where planes are
  // taken as columns.
  FastDivmod by_group{1};
  int64_t plane = 1;  // number of elements in a plane; 1 for columns (NHWC)
  // items: number of items in a channel. An item is a vector (planes, NCHW) or a row (columns, NHWC).
  uint32_t items = 0;
  // chunk: items of a block; chunks: blocks of a channel (planes) or of a tile (columns).
  uint32_t chunk = 0, chunks = 0;
  FastDivmod by_chunks, by_plane;  // by_plane divides by the vectors of a plane
  // Columns (NHWC): a block has `rows` rows of `width` threads, and a thread has one vector of channels. vectors:
  // number of vectors in a row of the tensor.
  FastDivmod by_width;
  uint32_t width = 0, rows = 0, vectors = 0;
};

// The coefficients of a channel. Forward: y = (x - mean) factor + offset. Backward: dx = dy factor - offset - (x -
// mean) slope.
struct alignas(16) ChannelCoefficients {
  float mean, factor, offset, slope;
};

}  // namespace minidnn
