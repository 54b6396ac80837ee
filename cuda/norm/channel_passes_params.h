// SPDX-License-Identifier: Apache-2.0
// The division of a dense batch norm among blocks by cuda.batch_norm.two_pass, for host code and kernels. The tensor is
// [images][channels][plane] (NCHW, called planes) or [rows][channels] (NHWC, called columns). Group norm
// (cuda.layer_norm.two_pass_groups) divides each sample separately: in NCHW, each channel of each sample counts as a
// channel of its own.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

constexpr int kChannelThreads = 256;
// For columns (NHWC): the number of rows that a thread loads at the same time; half as many in backward, which has two
// tensors.
constexpr int kRowsInFlight = 8;
// The blocks of norm_finish (kFinish) join few channels each, because NHWC tensors have about a thousand partial
// results per channel. The blocks of layer_norm_parameter_sums (kJoin) join 32 columns, one per lane of a warp.
constexpr int kFinishThreads = 512, kFinishChannels = 8;
constexpr int kJoinWarps = 16, kJoinThreads = 32 * kJoinWarps, kJoinChannels = 32;

struct ChannelTiling {
  int64_t channels = 0, members = 0;  // `members` is the number of elements that share a mean and a variance.
  int64_t samples = 1;
  int64_t parameters = 0;  // the number of channels in a sample, each with its own scale and bias
  uint32_t tiles = 1;      // for columns (NHWC): the number of tiles in a row, where a tile is the channels of a block
  FastDivmod by_tiles;
  // The number of adjacent channels that share a mean and a variance. In batch norm, it is 1, or the size of a plane if
  // an NCHW tensor is processed as columns.
  FastDivmod by_group{1};
  int64_t plane = 1;  // the number of elements of a channel in one image (NCHW), or 1 for columns (NHWC)
  // The number of vectors in a channel (for planes, NCHW), or the number of rows (for columns, NHWC).
  uint32_t items = 0;
  // `chunk` is the number of vectors (NCHW) or rows (NHWC) that a block processes. `chunks` is the number of blocks
  // that share a channel (NCHW) or a tile of channels (NHWC).
  uint32_t chunk = 0, chunks = 0;
  FastDivmod by_chunks, by_plane;  // by_plane divides by the number of vectors in a plane
  // For columns (NHWC): the threads of a block form `rows` rows of `width` threads, and each thread has one vector of
  // channels. `vectors` is the number of vectors in a row of the tensor.
  FastDivmod by_width;
  uint32_t width = 0, rows = 0, vectors = 0;
};

// The coefficients of a channel. Forward computes y = (x - mean) factor + offset. Backward computes dx = dy factor -
// offset - (x - mean) slope.
struct alignas(16) ChannelCoefficients {
  float mean, factor, offset, slope;
};

}  // namespace minidnn
