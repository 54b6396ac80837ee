// SPDX-License-Identifier: Apache-2.0
// cpu.conv.small_channel_filter: backward_filter as matrix products whose inner dimension is the pixels, for few input
// channels. Rows of a product are weights of a filter: pairs of a window element and an input channel. The kernel
// broadcasts an element of x for each weight, so these elements may be at any address. Columns are filters, which are
// read in place from channels-last dy. x is copied together with its padding, so that every window element falls on
// data.
#include <algorithm>

#include "cpp/conv/conv.h"
#include "cpp/conv/cpu/implicit_gemm/small_channel_filter_tiling.h"
#include "cpp/conv/cpu/phases.h"
#include "cpp/conv/cpu/plan_engine.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// One weight of a filter: its offset in dw, and the offset of its first element of x.
struct Weight {
  int64_t w, x;
};

// Returns all weights of the first filter, sorted by their offset in dw.
std::vector<Weight> weights_of(const SmallChannelFilterTiling& t) {
  std::vector<Weight> weights;
  const std::vector<ConvPhase> phases = conv_phases(t.g);
  for (const ConvTap& tap : phases[0].taps)
    for (int64_t c = 0; c < t.g.x.channels; ++c) {
      Weight weight{tap.w + c * t.g.w_channel, c};
      for (int j = 0; j < kMaxSpatial; ++j) weight.x += (tap.shift[j] + t.x.border[j]) * t.x.side.space[j];
      weights.push_back(weight);
    }
  std::ranges::sort(weights, {}, &Weight::w);
  return weights;
}

struct SmallChannelFilterPlan final : Plan<ConvProblem>, SmallChannelFilterTiling {
  const std::vector<Weight> filter_weights = weights_of(*this);

  using SmallChannelFilterTiling::SmallChannelFilterTiling;

  // A work item: some tiles of weights in one group of the convolution. `segments` has the offsets of the operands.
  struct Item {
    int64_t group, tile, tiles;
    GemmSegment* segments;
    float* sums;
  };

  // A slice (some image rows of dy) stays in the caches while a work item computes all of its tiles of weights.
  void run(const ConvArgs& args, void* memory, Stream) const override {
    char* workspace = static_cast<char*>(memory);
    const float* image = x.read_floats(args.x, workspace + x_at);
    const float* gradient = dy.read_floats(args.dy, workspace + dy_at);
    const int64_t items = ceil_div(tiles, item_tiles), lines[] = {g.images, g.y.size[0], g.y.size[1]};
    const int64_t all = lines[0] * lines[1] * lines[2], length = g.y.size[2];
    cpu::parallel_items(g.groups * items, [&](int64_t i, int64_t thread) {
      Item item{i / items, i % items * item_tiles};
      item.tiles = std::min(item_tiles, tiles - item.tile);
      item.segments = reinterpret_cast<GemmSegment*>(workspace + scratch_at + size_t(thread) * scratch_bytes);
      item.sums =
          reinterpret_cast<float*>(workspace + sums_at) + (item.group * tiles + item.tile) * kernel.rows * pitch;
      for (int64_t line = 0; line < all; line += slice_lines)
        for (int64_t pixel = 0; pixel < length; pixel += slice_pixels) {
          const int64_t count = std::min(slice_lines, all - line);
          NdIterator<3> at(lines, line);
          for (int64_t s = 0; s < count; ++s, at.advance()) locate_segments(item, at.at, pixel, s, count);
          multiply(item, count, std::min(slice_pixels, length - pixel), image, gradient, line + pixel > 0);
        }
      with_floating(out_dtype(p),
                    [&](auto type) { write(item, static_cast<typename decltype(type)::type*>(args.out)); });
    });
  }

  // Writes the operand offsets of one image row of dy, whose index is [image, depth, row] = `at`, from pixel `pixel`
  // on.
  void locate_segments(const Item& item, const int64_t (&at)[3], int64_t pixel, int64_t index, int64_t count) const {
    const int64_t bytes_of_float = int64_t(sizeof(float));
    const int64_t position[] = {at[1], at[2], pixel};
    int64_t x_offset = at[0] * x.side.image + item.group * g.x.channels,
            dy_offset = at[0] * dy.side.image + item.group * g.y.channels;
    for (int j = 0; j < kMaxSpatial; ++j) {
      x_offset += position[j] * g.stride[j] * x.side.space[j];
      dy_offset += position[j] * dy.side.space[j];
    }
    GemmSegment* to = item.segments + index;
    for (int64_t t = item.tile; t < item.tile + item.tiles; ++t, to += count) {
      // If weights do not fill the last tile, its remaining rows read the same element of x as the first weight.
      for (int64_t row = 0; row < kernel.rows; ++row) {
        const int64_t weight = t * kernel.rows + row;
        to->a[row] = (x_offset + filter_weights[size_t(weight < weights ? weight : 0)].x) * bytes_of_float;
      }
      to->b = dy_offset * bytes_of_float;
    }
  }

  void multiply(const Item& item, int64_t count, int64_t pixels, const float* image, const float* gradient,
                bool add) const {
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t t = 0; t < item.tiles; ++t)
        kernel.multiply({item.segments + t * count, count, pixels, image, g.stride[2] * x.side.space[2],
                         gradient + panel * kernel.columns, dy.side.space[2],
                         item.sums + t * kernel.rows * pitch + panel * kernel.columns, pitch, add});
  }

  template <class Y> void write(const Item& item, Y* dw) const {
    const int64_t first = item.tile * kernel.rows, end = std::min(first + item_tiles * kernel.rows, weights);
    for (int64_t k = 0; k < g.y.channels; ++k)
      for (int64_t i = first; i < end; ++i)
        dw[filter_weights[size_t(i)].w + (item.group * g.y.channels + k) * g.w_filter] =
            Y(item.sums[(i - first) * pitch + k]);
  }
};

}  // namespace

struct SmallChannelFilter final : PlanEngine<SmallChannelFilterTiling, SmallChannelFilterPlan> {
  std::string name() const override { return "cpu.conv.small_channel_filter"; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction != ConvDirection::backward_filter) return "supports backward_filter only";
    if (operand_dtype(p) == DType::float64) return "float64 is not supported";
    if (p.y.numel() == 0 || p.w.numel() == 0) return "w or y is empty";
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    const SmallChannelFilterTiling t(p, d);
    const double waste = wasted(t.weights, t.kernel.rows) * wasted(t.g.y.channels, t.kernel.columns);
    const double copied = double(p.x.numel()) + (t.g.y.channel == 1 ? 0 : double(p.y.numel()));
    // The number of weights of dw. Each weight is stored by its own scalar store, so it costs more than a copied
    // element.
    const double written = double(p.w.numel());
    return roofline_us(conv_flop(p) * waste / 10, conv_bytes(p), d, 0.92) +
           roofline_us(0, 12 * copied + 48 * written, d, 1);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::SmallChannelFilter>();

}  // namespace minidnn
