// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/implicit_gemm/implicit_gemm_filter_tiling.h"

#include <algorithm>

#include "cpp/core/cpu/work_size.h"

namespace minidnn {
namespace cpu::conv {
namespace {

constexpr int64_t kItemTiles = 8;

ConvGeometry swapped(ConvGeometry g) {
  std::swap(g.x, g.y);
  std::swap(g.w_filter, g.w_channel);
  return g;
}

// Joins all pixels of an image into one line, if the convolution is pointwise with stride 1 and the pixels of each
// image have a constant stride in memory. Returns all other convolutions unchanged.
ConvGeometry joined(ConvGeometry g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.stride[j] != 1 || g.pad[j] != 0 || g.x.size[j] != g.y.size[j]) return g;
  for (ConvTensorView* s : {&g.x, &g.y}) {
    for (int j = kMaxSpatial - 2; j >= 0; --j)
      if (s->size[j] > 1 && s->space[j] != s->space[j + 1] * s->size[j + 1]) return g;
    // If the last dimension has a single pixel, its stride is not the distance between pixels.
    if (s->size[2] == 1 && s->size[0] * s->size[1] > 1) return g;
  }
  for (ConvTensorView* s : {&g.x, &g.y}) {
    s->size[2] *= s->size[0] * s->size[1];
    s->size[0] = s->size[1] = 1;
    s->space[0] = s->space[1] = s->space[2] * s->size[2];
  }
  return g;
}

}  // namespace

ImplicitGemmFilterTiling::ImplicitGemmFilterTiling(const ConvProblem& problem, const Device& d)
    : p(problem),
      amx(operand_dtype(p) == DType::bfloat16 ? bf16_products() : nullptr),
      swap(!amx && swaps(problem, without_gaps(conv_geometry(problem)))),
      g(joined(swap ? swapped(without_gaps(conv_geometry(problem))) : without_gaps(conv_geometry(problem)))),
      // The kernel reads as many channels as a tile has columns, so it may read beyond the last pixel. x is then copied
      // to memory that has enough space. With AMX, each work item copies pixels of x.
      x(g.x, operand_dtype(p), g.images, g.groups, !amx && g.x.channels % kernel.columns, {},
        amx ? DType::bfloat16 : DType::float32),
      threads(d.sm_count),
      taps(volume(g.window)) {
  panels = ceil_div(g.x.channels, kernel.columns);
  tiles = ceil_div(g.y.channels, kernel.rows);
  item_tiles = tiles_of_item();
  unit_stride_pixels = operand_dtype(p) == DType::float32 && g.y.space[2] == 1 && g.y.channel != 1;
  const int64_t pixel_step = x.side.space[2] * g.stride[2];
  cache_set_conflict = pixel_step % 1024 == 0 || (pixel_step % 512 == 0 && item_tiles >= 4);
  sum_rows = amx ? ceil_div(g.y.channels, kBf16Lines) * kBf16Lines : tiles * kernel.rows;
  direct_store = !amx && out_dtype(p) == DType::float32 && g.w_channel == 1 && g.x.channels % kernel.columns == 0;
  make_slices();
  auto reserve = [&](size_t size) {
    size_t at = bytes;
    bytes += ceil_div<size_t>(size, 4096) * 4096;
    return at;
  };
  x_at = reserve(x.bytes());
  if (!direct_store) sums_at = reserve(size_t(g.groups * sum_rows * line()) * sizeof(float));
  scratch_bytes = size_t((item_tiles * kernel.rows + kernel.columns) * kSlicePixels) * sizeof(float) +
                  2 * kSlicePixels * sizeof(GemmSegment);
  if (amx) divide_for_amx();
  scratch_at = reserve(scratch_bytes * size_t(threads));
}

int64_t ImplicitGemmFilterTiling::tiles_of_item() const {
  int64_t best = 1;
  auto time = [&](int64_t some) {
    return double(ceil_div(g.groups * ceil_div(tiles, some), threads)) * (double(some) + 1.0 / 3);
  };
  for (int64_t some = 2; some <= std::min(cpu::work_size(kItemTiles), tiles); ++some)
    if (time(some) <= time(best)) best = some;
  return best;
}

void ImplicitGemmFilterTiling::divide_for_amx() {
  constexpr int64_t kMost = 256, kLeast = 32;
  item_filters = std::min(sum_rows, cpu::work_size(kMost, kBf16Lines));
  item_channels = std::min(panels * kernel.columns, cpu::work_size(kMost, kernel.columns));
  // Work items become smaller until there is at least one for each thread.
  while (g.groups * taps * ceil_div(g.y.channels, item_filters) * ceil_div(g.x.channels, item_channels) < threads &&
         std::max(item_filters, item_channels) > kLeast) {
    int64_t& larger = item_filters > item_channels ? item_filters : item_channels;
    larger = ceil_div(larger / 2, kLeast) * kLeast;
  }
  const int64_t others = g.groups * ceil_div(g.y.channels, item_filters) * ceil_div(g.x.channels, item_channels);
  item_taps = ceil_div(taps, std::min(taps, ceil_div(threads, others)));
  scratch_bytes = size_t(item_filters * bf16_pitch(kSlicePixels) + item_channels * kSlicePixels) * sizeof(bfloat16);
}

bool ImplicitGemmFilterTiling::swaps(const ConvProblem& p, const ConvGeometry& g) {
  if (!is_pointwise(g)) return false;
  // Decides whether x and dy exchange roles. The gain: the tensor with fewer channels is copied. The cost: dw is
  // written twice, first as sums, then transposed.
  const int64_t pixels = g.images * g.y.size[0] * g.y.size[1] * g.y.size[2];
  const bool in_place = operand_dtype(p) == DType::float32 && g.x.space[2] == 1 && g.y.space[2] == 1;
  const int64_t saved = (g.y.channels - g.x.channels) * (in_place ? -1 : 1);
  return g.groups == 1 && g.x.channels >= gemm_kernels().f32.rows && pixels * saved > 2 * g.y.channels * g.x.channels;
}

void ImplicitGemmFilterTiling::make_slices() {
  const int64_t lines[] = {g.images, g.y.size[0], g.y.size[1]}, size = g.y.size[2];
  NdIterator<3> line(lines, 0);
  const int64_t most = cpu::work_size(kSlicePixels);
  int64_t filled = 0;
  slices.push_back(0);
  for (int64_t i = 0; i < lines[0] * lines[1] * lines[2]; ++i, line.advance())
    for (int64_t begin = 0, end; begin < size; begin = end) {
      end = std::min(begin + most, size);
      if (filled + end - begin > most) {
        slices.push_back(spans.size());
        filled = 0;
      }
      spans.push_back({line.at[0], {line.at[1], line.at[2]}, begin, end});
      filled += end - begin;
    }
  slices.push_back(spans.size());
}

}  // namespace cpu::conv
}  // namespace minidnn
