// SPDX-License-Identifier: Apache-2.0
// How cuda.batch_norm.two_pass divides a dense batch norm, for host and kernels. The tensor is planes
// [images][channels][plane], or columns [rows][channels]. The vectors of a plane's channel are counted over all images.
// cuda.layer_norm.two_pass_groups divides each sample separately: the planes of all samples are channels of one image;
// columns are those of `samples` tensors.
#pragma once
#include "cpp/core/fast_divmod.h"

namespace minidnn {

constexpr int kChannelThreads = 256;
constexpr int kRowsInFlight = 8;  // columns: rows in flight per thread; backward half as many, of two tensors
// Two kinds of blocks that join partial results. kFinish: few channels each, as columns have about a thousand chunks.
// kNormFinish: one lane per channel.
constexpr int kFinishThreads = 512, kFinishChannels = 8;
constexpr int kJoinWarps = 16, kJoinThreads = 32 * kJoinWarps, kJoinChannels = 32;

struct ChannelTiling {
  int64_t channels = 0, members = 0;  // members: elements of a statistic
  int64_t samples = 1;
  int64_t parameters = 0;  // channels of a sample
  uint32_t tiles = 1;      // of columns
  FastDivmod by_tiles;
  // Neighbouring channels that share a statistic. Batch norm: more than 1 only where planes are taken as columns.
  FastDivmod by_group{1};
  int64_t plane = 1;               // elements of a plane; 1: columns
  uint32_t items = 0;              // of a channel: vectors (planes) or rows (columns)
  uint32_t chunk = 0, chunks = 0;  // items of a block; blocks of a channel, or of a tile of columns
  FastDivmod by_chunks, by_plane;  // by_plane: vectors of a plane
  // Columns: a block has `rows` x `width` threads with one vector of channels each. A row of the tensor has `vectors`.
  FastDivmod by_width;
  uint32_t width = 0, rows = 0, vectors = 0;
};

// The coefficients of a channel: y = (x - mean) factor + offset;  dx = dy factor - offset - (x - mean) slope.
struct alignas(16) ChannelCoefficients {
  float mean, factor, offset, slope;
};

}  // namespace minidnn
