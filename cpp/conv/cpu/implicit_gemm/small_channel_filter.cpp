// SPDX-License-Identifier: Apache-2.0
// cpu.conv.small_channel_filter: backward_filter as products over pixels, for few input channels. The rows of a tile
// are pairs of tap and channel, whose elements of x are broadcast from any address; its columns are filters, read in
// place from channels-last dy. Nothing is packed. Only x is copied, with its padding, so that every tap falls on an
// element under each pixel.
#include <algorithm>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/to_nhwc.h"
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::conv {
namespace {

constexpr int64_t kSlicePixels = 256;  // pixels of a slice: a panel of dy takes 32 KB of a first-level cache
constexpr int64_t kItemTiles = 16;

struct FilterTapsPlan final : Plan<ConvProblem> {
  // An element of a filter: its offset in dw, and the offset of the element of x that it multiplies at the first pixel.
  struct Weight {
    int64_t w, x;
  };

  ConvProblem p;
  ConvGeometry g;
  const GemmKernel<float>& kernel = gemm_kernels().f32;
  ChannelsLast x, dy;
  std::vector<Weight> weights;  // sorted by offset in dw
  int64_t tiles, panels, pitch, item_tiles, slice_pixels, slice_lines;
  size_t x_at = 0, dy_at = 0, sums_at = 0, rooms_at = 0, room_bytes = 0, bytes = 0;

  static ChannelsLast padded(const ConvProblem& p, const ConvGeometry& g) {
    int64_t border[kMaxSpatial];
    reach(g, border);
    return {g.x, operand_dtype(p), g.images, g.groups, border[0] + border[1] + border[2] > 0, border};
  }

  FilterTapsPlan(const ConvProblem& problem, const Device& d)
      : p(problem),
        g(conv_geometry(problem)),
        x(padded(p, g)),
        // The kernel reads whole panels of columns. If the last panel of dy is not full, the kernel would read beyond
        // the last pixel, so dy is copied to memory that has space for a whole panel.
        dy(g.y, operand_dtype(p), g.images, g.groups, g.y.channels % kernel.columns, {}) {
    const std::vector<ConvPhase> phases = conv_phases(g);
    for (const ConvTap& tap : phases[0].taps)
      for (int64_t c = 0; c < g.x.channels; ++c) {
        Weight weight{tap.w + c * g.w_channel, c};
        for (int j = 0; j < kMaxSpatial; ++j) weight.x += (tap.shift[j] + x.border[j]) * x.side.space[j];
        weights.push_back(weight);
      }
    std::ranges::sort(weights, {}, &Weight::w);
    tiles = ceil_div(int64_t(weights.size()), kernel.rows);
    panels = ceil_div(g.y.channels, kernel.columns);
    pitch = panels * kernel.columns;
    item_tiles = std::min({ceil_div<int64_t>(tiles * g.groups, d.sm_count), tiles, cpu::work_size(kItemTiles)});
    slice_pixels = cpu::work_size(kSlicePixels);
    slice_lines = std::max<int64_t>(slice_pixels / g.y.size[2], 1);
    auto reserve = [&](size_t size) {
      size_t at = bytes;
      bytes += ceil_div<size_t>(size, 4096) * 4096;
      return at;
    };
    x_at = reserve(x.bytes());
    dy_at = reserve(dy.bytes());
    sums_at = reserve(size_t(g.groups * tiles * kernel.rows * pitch) * sizeof(float));
    room_bytes = ceil_div<size_t>(size_t(item_tiles * slice_lines) * sizeof(GemmSegment), 4096) * 4096;
    rooms_at = reserve(room_bytes * size_t(d.sm_count));
  }

  // A work item is some tiles of a group, over all pixels. A slice of dy stays in the caches while these tiles are
  // computed.
  void run(const ConvArgs& args, void* memory, Stream) const override {
    char* workspace = static_cast<char*>(memory);
    const float* image = x.read(args.x, workspace + x_at);
    const float* gradient = dy.read(args.dy, workspace + dy_at);
    const int64_t parts = ceil_div(tiles, item_tiles), lines[] = {g.images, g.y.size[0], g.y.size[1]};
    const int64_t all = lines[0] * lines[1] * lines[2], length = g.y.size[2];
    cpu::parallel_items(g.groups * parts, [&](int64_t item, int64_t room) {
      const int64_t group = item / parts, first = item % parts * item_tiles, some = std::min(item_tiles, tiles - first);
      GemmSegment* segments = reinterpret_cast<GemmSegment*>(workspace + rooms_at + size_t(room) * room_bytes);
      float* sums = reinterpret_cast<float*>(workspace + sums_at) + (group * tiles + first) * kernel.rows * pitch;
      for (int64_t line = 0; line < all; line += slice_lines)
        for (int64_t pixel = 0; pixel < length; pixel += slice_pixels) {
          const int64_t count = std::min(slice_lines, all - line);
          NdIterator<3> at(lines, line);
          for (int64_t s = 0; s < count; ++s, at.advance())
            place(at.at, pixel, group, first, some, segments + s, count);
          multiply(segments, some, count, std::min(slice_pixels, length - pixel), image, gradient, sums,
                   line + pixel > 0);
        }
      with_floating(out_dtype(p), [&](auto type) {
        write(sums, group, first * kernel.rows, static_cast<typename decltype(type)::type*>(args.out));
      });
    });
  }

  // Fills in one line's segment of each of `some` tiles; these segments are `count` apart.
  void place(const int64_t (&at)[3], int64_t pixel, int64_t group, int64_t first, int64_t some, GemmSegment* to,
             int64_t count) const {
    const int64_t size = int64_t(sizeof(float)), end = int64_t(weights.size());
    const int64_t position[] = {at[1], at[2], pixel};
    int64_t from = at[0] * x.side.image + group * g.x.channels, dy_from = at[0] * dy.side.image + group * g.y.channels;
    for (int j = 0; j < kMaxSpatial; ++j) {
      from += position[j] * g.stride[j] * x.side.space[j];
      dy_from += position[j] * dy.side.space[j];
    }
    for (int64_t t = first; t < first + some; ++t, to += count) {
      for (int64_t i = 0; i < kernel.rows; ++i)  // rows after the last weight read the first one again
        to->a[i] = (from + weights[size_t(t * kernel.rows + i < end ? t * kernel.rows + i : 0)].x) * size;
      to->b = dy_from * size;
    }
  }

  void multiply(const GemmSegment* segments, int64_t some, int64_t count, int64_t run, const float* image,
                const float* gradient, float* sums, bool add) const {
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t t = 0; t < some; ++t)
        kernel.multiply(segments + t * count, count, run, image, g.stride[2] * x.side.space[2],
                        gradient + panel * kernel.columns, dy.side.space[2],
                        sums + t * kernel.rows * pitch + panel * kernel.columns, pitch, add);
  }

  template <class Y> void write(const float* sums, int64_t group, int64_t first, Y* dw) const {
    const int64_t end = std::min(first + item_tiles * kernel.rows, int64_t(weights.size()));
    for (int64_t k = 0; k < g.y.channels; ++k)
      for (int64_t i = first; i < end; ++i)
        dw[weights[size_t(i)].w + (group * g.y.channels + k) * g.w_filter] = Y(sums[(i - first) * pitch + k]);
  }
};

}  // namespace

struct SmallChannelFilter final : Engine<ConvProblem> {
  std::string name() const override { return "cpu.conv.small_channel_filter"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction != ConvDirection::backward_filter) return "supports backward_filter only";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.y.numel() == 0 || p.w.numel() == 0) return "w or y is empty";
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const GemmKernel<float>& kernel = gemm_kernels().f32;
    const ConvGeometry g = conv_geometry(p);
    const double waste = wasted(g.x.channels * volume(g.window), kernel.rows) * wasted(g.y.channels, kernel.columns);
    const double copied = double(p.x.numel()) + (g.y.channel == 1 ? 0 : double(p.y.numel()));
    const double written = double(p.w.numel());  // stored one at a time
    return roofline_us(conv_flop(p) * waste / 10, conv_bytes(p), d, 0.92) +
           roofline_us(0, 12 * copied + 48 * written, d, 1);
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config&) const override {
    return FilterTapsPlan(p, d).bytes;
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    return std::make_unique<FilterTapsPlan>(p, d);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::SmallChannelFilter>();

}  // namespace minidnn
