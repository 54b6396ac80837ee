// SPDX-License-Identifier: Apache-2.0
#include "cuda/norm/channel_passes.h"

namespace minidnn {
namespace {

// Whether a stride is equal in all tensors, which dense NCHW and NHWC layouts require.
bool equal_steps(const NormOffsets& s) { return s.dy == s.x && s.out == s.x && s.other == s.x && s.dresidual == s.x; }

}  // namespace

std::string dense_channels(const BatchNormProblem& p, ChannelTiling& c) {
  const NormSpaces s = norm_spaces(p);
  const char* const layout = "needs dense tensors with equal strides, in the order [N][C][space] or [N][space][C]";
  if (p.x.numel() == 0) return "x is empty";
  for (const NormSpace* space : {&s.groups, &s.members})
    for (int64_t i = 0; i < space->rank; ++i)
      if (!equal_steps(space->step[i])) return layout;
  c.channels = s.groups.size;
  c.members = s.members.size;
  const NormOffsets channel = s.groups.span_step();
  if (s.groups.rank > 1 || (c.channels > 1 && channel.parameter != 1)) return layout;
  const bool columns = c.channels > 1 && channel.x == 1;
  if (columns) {
    c.plane = 1;
    if (s.members.rank > 1 || (c.members > 1 && s.members.span_step().x != c.channels)) return layout;
  } else {
    c.plane = c.channels > 1 ? channel.x : c.members;
    if (s.members.rank > 2 || s.members.span() != c.plane || (c.plane > 1 && s.members.span_step().x != 1))
      return layout;
    if (s.members.rank == 2 && s.members.step[0].x != c.plane * c.channels) return layout;
  }
  if (c.members >= kMostItems) return cat("supports fewer than 2^30 elements in a channel; got ", c.members);
  if (c.channels >= int64_t(1) << 24) return cat("supports fewer than 2^24 channels; got ", c.channels);
  return "";
}

int64_t vector_of(const BatchNormProblem& p, const ChannelTiling& c) {
  const int64_t wide = 16 / int64_t(itemsize(p.x.dtype));
  return p.alignment == 16 && (c.plane > 1 ? c.plane : c.channels) % wide == 0 ? wide : 1;
}

void divide_channels(ChannelTiling& c, int64_t vector, const Device& d) {
  // For planes (NCHW), the grid has about 16 blocks per SM, so that SMs are idle only for a short time at the end. For
  // columns (NHWC), it has 8, because a block has more work at its beginning and end.
  const int64_t blocks = max_of((c.plane > 1 ? 16 : 8) * d.sm_count / c.samples, int64_t(1));
  // `least` is the minimum number of vectors (NCHW) or rows (NHWC) per block.
  int64_t tiles = c.channels, least = 4 * kChannelThreads;
  if (c.plane > 1) {
    c.items = uint32_t(c.items / vector);
    c.by_plane = FastDivmod(c.plane / vector);
  } else {
    c.vectors = uint32_t(c.channels / vector);
    // A tile, the channels of a block, is at most 32 vectors wide, one per lane of a warp.
    tiles = ceil_div(int64_t(c.vectors), int64_t(32));
    c.width = uint32_t(ceil_div(int64_t(c.vectors), tiles));
    c.rows = uint32_t(kChannelThreads / c.width);
    c.by_width = FastDivmod(c.width);
    c.tiles = uint32_t(tiles);
    c.by_tiles = FastDivmod(tiles);
    // The number of rows that a block loads at the same time. The rows per block are a multiple of it.
    least = kRowsInFlight * c.rows;
  }
  int64_t chunks = std::clamp<int64_t>(blocks / tiles, 1, ceil_div<int64_t>(c.items, least));
  // A thread adds up at most 1024 rows, because rounding errors of float32 sums grow with the number of terms.
  if (c.plane == 1) chunks = max_of(chunks, ceil_div<int64_t>(c.items, int64_t(1024) * c.rows));
  c.chunk = uint32_t(ceil_div(ceil_div<int64_t>(c.items, chunks), least) * least);
  c.chunks = uint32_t(ceil_div<int64_t>(c.items, c.chunk));
  c.by_chunks = FastDivmod(c.chunks);
}

int64_t blocks_of(const ChannelTiling& c) {
  return (c.plane > 1 ? c.channels : c.samples * int64_t(c.tiles)) * int64_t(c.chunks);
}
size_t partial_bytes(const ChannelTiling& c) {
  return size_t(c.chunks) * size_t(c.samples * c.channels) * 4 * sizeof(float);
}

KernelSpec channel_pass(const BatchNormProblem& p, const ChannelTiling& c, const char* pass) {
  const bool backward = p.direction == NormDirection::backward;
  return {"cuda/norm/channel_passes.cu",
          cat("minidnn::norm_", c.plane > 1 ? "planes_" : "columns_", pass, "<", cuda_name(p.x.dtype), ", ",
              vector_of(p, c), ", ", backward ? "true" : "false", ">")};
}
}  // namespace minidnn
