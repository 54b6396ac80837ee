// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/implicit_gemm/small_channel_filter_tiling.h"

#include <algorithm>

#include "cpp/conv/cpu/phases.h"
#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The largest number of pixels that are computed together. Their part of dy takes 32 KB of a first-level cache.
constexpr int64_t kSlicePixels = 256;
// The largest number of tiles of weights in a work item.
constexpr int64_t kItemTiles = 16;

ChannelsLast with_border(const ConvProblem& p, const ConvGeometry& g) {
  int64_t border[kMaxSpatial];
  reach(g, border);
  return {g.x, operand_dtype(p), g.images, g.groups, border[0] + border[1] + border[2] > 0, border};
}

}  // namespace

SmallChannelFilterTiling::SmallChannelFilterTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      g(conv_geometry(problem)),
      x(with_border(p, g)),
      // The kernel reads as many channels as a tile has columns, so it may read beyond the last pixel. dy is then
      // copied to memory that has enough space.
      dy(g.y, operand_dtype(p), g.images, g.groups, g.y.channels % kernel.columns, {}),
      weights(g.x.channels * volume(g.window)),
      tiles(ceil_div(weights, kernel.rows)),
      panels(ceil_div(g.y.channels, kernel.columns)),
      pitch(panels * kernel.columns),
      item_tiles(std::min({ceil_div<int64_t>(tiles * g.groups, d.sm_count), tiles, cpu::work_size(kItemTiles)})),
      slice_pixels(cpu::work_size(kSlicePixels)),
      slice_lines(std::max<int64_t>(slice_pixels / std::max<int64_t>(g.y.size[2], 1), 1)) {
  auto reserve = [&](size_t size) {
    const size_t at = bytes;
    bytes += ceil_div<size_t>(size, 4096) * 4096;
    return at;
  };
  x_at = reserve(x.bytes());
  dy_at = reserve(dy.bytes());
  sums_at = reserve(size_t(g.groups * tiles * kernel.rows * pitch) * sizeof(float));
  scratch_bytes = ceil_div<size_t>(size_t(item_tiles * slice_lines) * sizeof(GemmSegment), 4096) * 4096;
  scratch_at = reserve(scratch_bytes * size_t(d.sm_count));
}

}  // namespace cpu::conv
}  // namespace minidnn
